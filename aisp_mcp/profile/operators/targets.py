"""Operators of a trace as benchmark targets, with the shapes, strides and types that a program really uses."""

from __future__ import annotations

import fnmatch
import json
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError, NotFound
from aisp_mcp.process import isolation, python
from aisp_mcp.process.run import run
from aisp_mcp.profile.operators import read
from aisp_mcp.profile.operators.aten import MARK
from aisp_mcp.profile.operators.read import Operator
from aisp_mcp.profile.operators.records import Coverage, Traced, TracedTarget
from aisp_mcp.suites.adapters.base import identifier

DESCRIBE_S = 300.0
CHAPTER = "traced"


def targets(trace: str, pattern: str, top: int, folder: Path) -> Traced:
    """Write a target for each of the top operators that match. Raises NotFound NO_OPERATOR, UsageError NO_SHAPES."""
    known = read.read(trace)
    chosen = [operator for operator in known if fnmatch.fnmatchcase(operator.name, pattern)]
    if not chosen:
        names = Counter(operator.name for operator in known if operator.name.startswith("aten::"))
        raise NotFound(
            "NO_OPERATOR",
            f"No operator of the trace matches {pattern[:60]!r}.",
            f"The trace contains, among others: {', '.join(name for name, _ in names.most_common(8))}.",
        )
    described = describe(chosen)
    texts = [(operator, answer["text"]) for operator, answer in zip(chosen, described, strict=True) if "text" in answer]
    chapter = folder / CHAPTER
    chapter.mkdir(parents=True, exist_ok=True)
    written = [_write(chapter, operator, text, at) for at, (operator, text) in enumerate(texts[:top])]
    return Traced(folder=str(folder), targets=written, coverage=_coverage(chosen, described))


def describe(chosen: list[Operator]) -> list[dict[str, Any]]:
    """The text of a target, or the reason why there is none, for each. Raises BenchmarkError RECORDING_FAILED."""
    with tempfile.TemporaryDirectory(prefix="aisp-operators-") as temporary:
        file = Path(temporary).resolve() / "signatures.json"
        file.write_text(json.dumps([asdict(operator) for operator in chosen]), "utf-8")
        argv = [*python.module("aisp_mcp.profile.operators.aten"), str(file)]
        done = run(isolation.wrap(argv, isolation.demand("auto")), timeout_s=DESCRIBE_S, cwd="/", max_output=64 * 2**20)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise BenchmarkError("RECORDING_FAILED", f"The operators could not be looked up in torch: {tail}.")
    answer: list[dict[str, Any]] = json.loads(lines[-1].removeprefix(MARK))
    return answer


def _write(chapter: Path, operator: Operator, text: str, at: int) -> TracedTarget:
    name = f"{identifier(operator.name.partition('::')[2])}_{at}"
    file = chapter / f"baseline_{name}.py"
    file.write_text(text, "utf-8")
    return TracedTarget(
        target=f"{CHAPTER}:{name}",
        operator=operator.name,
        inputs=[f"{kind} {dims}" for kind, dims in zip(operator.types, operator.dims, strict=True) if dims],
        calls=operator.calls,
        device_us=operator.device_us,
        host_us=operator.host_us,
        file=str(file),
    )


def _coverage(chosen: list[Operator], described: list[dict[str, Any]]) -> Coverage:
    good = [operator for operator, answer in zip(chosen, described, strict=True) if "text" in answer]
    device = sum(operator.device_us for operator in chosen)
    return Coverage(
        signatures=len(chosen),
        targets=len(good),
        calls_share=sum(operator.calls for operator in good) / sum(operator.calls for operator in chosen),
        device_share=sum(operator.device_us for operator in good) / device if device else None,
        reasons=dict(Counter(answer["reason"] for answer in described if "reason" in answer).most_common(12)),
    )
