"""A verdict at larger sizes than those given says so in its sentence, wherever the sentence goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.runs import functions, measure
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

SOURCE = "def f(x):\n    return x.sum(1)\n"


def test_the_sentence_names_both_sizes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = {"asked": {"n": 64}, "measured": {"n": 256}, "resolved": True}
    flag = Flag(code="size_grown", severity="note", message="grown", evidence=evidence)
    facts = {"target": "slow:f", "candidate": "fast", "verdict": "faster", "sentence": "faster: 2x"}
    comparison = Comparison.model_validate({**facts, "isolation": "L1", "replicates": 5})

    def measured(ctx: Context, *_: Any, about: measure.About, **__: Any) -> Run:
        shared = {"id": "r_1", "created_at": 1.0, "preset": "default", "profile": "portable", "environment": {}}
        return Run.model_validate({**shared, "kind": about.kind, "comparisons": [comparison]})

    monkeypatch.setattr(functions, "grown", lambda _, request, __: (request, flag))
    monkeypatch.setattr(measure, "measure", measured)
    files = [tmp_path / name for name in ("slow.py", "fast.py")]
    for file in files:
        file.write_text(SOURCE)
    request = Request(*map(str, files), "n=64, x=randn(n,n)")
    ctx = Context(settings=Settings.from_env({"AISP_HOME": str(home)}))
    run = functions.measure(ctx, request, Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu"))
    assert run.kind is RunKind.FUNCTIONS
    assert run.comparisons[0].sentence == "faster: 2x; measured at n=256 because calls at n=64 are too short to time"


def test_sizes_that_the_calls_ignore_stay_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[dict[str, int]]()

    def probed(request: Request, *_: Any) -> Comparison:
        tried.append(dict(request.sizes))
        low = Flag(code=functions.UNRESOLVED, severity="note", message="short")
        facts = {"target": "slow:f", "candidate": "fast", "verdict": "inconclusive", "sentence": "inconclusive"}
        measured = dict.fromkeys(("time_s", "p50_s", "p95_s", "parent_time_s"), 1e-5) | {
            "processes": 1,
            "rounds": 1,
            "calls": 1,
        }
        return Comparison.model_validate(
            {**facts, "isolation": "L1", "replicates": 1, "flags": [low], "baseline": measured}
        )

    monkeypatch.setattr(functions, "_probe", probed)
    request = Request(SOURCE, SOURCE, "n=64, x=randn(n, n)")
    ctx = Context(settings=Settings.from_env({"AISP_HOME": str(tmp_path)}))
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    assert functions.grown(ctx, request, options) == (request, None)
    assert tried == [{"n": 64}, {"n": 128}]
