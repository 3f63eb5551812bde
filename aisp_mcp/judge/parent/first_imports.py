"""Modules that programs import in their first call, so that the processes they are forked from can import them once.

`torch.use_deterministic_algorithms()` and `torch.compile` each import a thousand modules, which takes seconds in every
process of a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.protocol.module_loader import common_of, problem_files, source_text

TRITON = "aisp_mcp.judge.candidate.triton_key"
MODULES = {
    re.compile(r"\btriton\b"): TRITON,
    re.compile(r"\buse_deterministic_algorithms\b"): "torch._inductor.config",
    re.compile(r"\btorch\.(compile|_dynamo|_inductor)\b"): "torch._inductor.compile_fx",
}


def of_baseline(baseline: Path) -> list[str]:
    """Modules that the texts of the baseline and of its problem name."""
    return _named([baseline, common_of(baseline), *problem_files(baseline)])


def of_candidate(pair: Pair) -> list[str]:
    """Modules that the candidate's text names."""
    return _named([pair.path])


def likely(baseline: Path, device: str) -> list[str]:
    """Modules that candidates for this baseline are likely to name: its own, and Triton on a GPU."""
    return list(dict.fromkeys([*of_baseline(baseline), *([TRITON] if device == "cuda" else [])]))


def _named(paths: Iterable[Path]) -> list[str]:
    text = "\n".join(map(source_text, paths))
    return [module for pattern, module in MODULES.items() if pattern.search(text)]
