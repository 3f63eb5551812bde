"""A verdict at larger sizes than those given says so in its sentence, wherever the sentence goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge import comparison as judge
from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
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

    monkeypatch.setattr(functions, "grown", lambda _, task: [(request, flag) for request, _ in task])
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
    assert functions.grown(ctx, [(request, options)]) == [(request, None)]
    assert tried == [{"n": 64}, {"n": 128}]
    chosen = replace(request, grows=False)  # such as by a suite
    assert functions.grown(ctx, [(chosen, options)]) == [(chosen, None)]
    assert len(tried) == 2


def test_all_candidates_of_a_baseline_are_measured_at_the_sizes_that_the_fastest_needs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"processes": 1, "rounds": 1, "calls": 1, "time_s": 1e-4, "p50_s": 1e-4, "p95_s": 1e-4}
    shown = {"isolation": "L1", "replicates": 1, "verdict": "same", "sentence": "same"}
    probed: list[tuple[str, int]] = []

    def compared(pair: Pair, *_: Any) -> Comparison:
        n = next(int(line.split()[-1]) for line in pair.baseline.read_text().splitlines() if line.strip()[:3] == "n =")
        short = pair.candidate == "fast" and n < 256
        probed.append((pair.candidate, n))
        flags = [{"code": "clock_resolution_low", "severity": "warn", "message": ""}] if short else []
        called_s = dict.fromkeys(("time_s", "parent_time_s"), n * 1e-6)
        facts = {"baseline": {**figures, **called_s}, "flags": flags, "target": pair.target}
        return Comparison.model_validate({**shown, **facts, "candidate": pair.candidate})

    def measured(ctx: Context, pairs: list[Pair], *_: Any, about: measure.About, **__: Any) -> Run:
        shared = {"id": "r_1", "created_at": 1.0, "preset": "default", "profile": "portable", "environment": {}}
        return Run.model_validate({**shared, "kind": about.kind, "comparisons": [compared(pair) for pair in pairs]})

    monkeypatch.setattr(judge, "compare", compared)
    monkeypatch.setattr(measure, "measure", measured)
    names = ("slow", "middle", "fast", "late")
    files = {name: tmp_path / f"{name}.py" for name in names}
    for file in files.values():
        file.write_text(SOURCE)
    inputs = "n=64, x=randn(n,n)"
    requests = [Request(str(files["slow"]), str(files[name]), inputs) for name in names[1:]]
    ctx = Context(settings=Settings.from_env({"AISP_HOME": str(home)}))
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    run = functions.measure_all(ctx, requests, options)
    assert probed[:-3] == [("middle", 64), ("fast", 64), ("fast", 128), ("fast", 256), ("late", 256)]
    assert [comparison.disclosed["sizes"] for comparison in run.comparisons] == [{"n": 256}] * 3
    assert all("measured at n=256" in comparison.sentence for comparison in run.comparisons)
