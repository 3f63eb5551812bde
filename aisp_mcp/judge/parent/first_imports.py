"""What programs load in their first call, and the processes that they are forked from can load once: modules.

`torch.use_deterministic_algorithms()` and `torch.compile` each import a thousand modules: seconds in every process of a
comparison, five of which run the baseline or the candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.protocol.module_loader import common_of, problem_files

MODULES = {
    re.compile(r"\btriton\b"): "aisp_mcp.judge.worker.triton_key",
    re.compile(r"\buse_deterministic_algorithms\b"): "torch._inductor.config",
    re.compile(r"\btorch\.(compile|_dynamo|_inductor)\b"): "torch._inductor.compile_fx",
}
# Modules of a candidate would count as memory of its baseline.
MEMORY = re.compile(r"""^\s+goal = ["']memory["']""", re.MULTILINE)


def of_baseline(pair: Pair) -> list[str]:
    """Modules that the texts of the baseline and of its problem name."""
    return _named([pair.baseline, common_of(pair.baseline), *problem_files(pair.baseline)])


def of_pair(pair: Pair) -> list[str]:
    """Modules that the texts of either program name; empty if memory is what is measured."""
    if MEMORY.search(_text(pair.baseline)):
        return []
    return list(dict.fromkeys([*of_baseline(pair), *_named([pair.path])]))


def _named(paths: Iterable[Path]) -> list[str]:
    text = "\n".join(map(_text, paths))
    return [module for pattern, module in MODULES.items() if pattern.search(text)]


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.is_file() and path.suffix != ".so" else ""
