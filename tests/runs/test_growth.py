"""A verdict at larger sizes than those given says so in its sentence, wherever the sentence goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import comparison as judge
from aisp_mcp.judge.comparison import CallTimes
from aisp_mcp.judge.functions import pair as plans
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


def trials(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, int], CallTimes | None]) -> list[tuple[str, int]]:
    """Have answer(candidate, n) in place of trials of pairs; the list of them."""
    tried = list[tuple[str, int]]()

    def timed(pair: Pair, _: Options, longest_s: float) -> CallTimes | None:
        n = next(int(line.split()[-1]) for line in pair.baseline.read_text().splitlines() if line.strip()[:3] == "n =")
        tried.append((pair.candidate, n))
        times = answer(pair.candidate, n)
        return times if times is None or times.baseline_s <= longest_s else None

    monkeypatch.setattr(judge, "time_calls", timed)
    return tried


def context(home: Path) -> Context:
    return Context(settings=Settings.from_env({"AISP_HOME": str(home)}))


def test_sizes_that_the_calls_ignore_stay_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = trials(monkeypatch, lambda *_: CallTimes(1e-5, 0.5, varies=True))
    request = Request(SOURCE, SOURCE, "n=64, x=randn(n, n)")
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    assert functions.grown(context(tmp_path), [(request, options)]) == [(request, None)]
    assert [n for _, n in tried] == [64, 128]
    chosen = replace(request, grows=False)  # such as by a suite
    assert functions.grown(context(tmp_path), [(chosen, options)]) == [(chosen, None)]
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("times", "measured", "tried"),
    [
        (lambda n: CallTimes(n * 1e-7, 25.6 / n, True), {"n": 1024}, [64, 128, 512, 1024]),
        (lambda n: CallTimes(n**3 * 1e-9, (8 / n) ** 3, True), {}, [64]),
        (lambda n: CallTimes(n**3 * 1e-9, (30 / n) ** 3, True), {"n": 128}, [64, 128]),
        (lambda n: CallTimes(n * 1e-7, 1e3 / n, True), {"n": 2048}, [64, 128, 512, 2048]),  # short even there
        (lambda n: CallTimes(n * 1e-5 if n < 256 else 1.0, 25.6 / n, True), {"n": 128}, [64, 128, 512]),
    ],
    ids=["in proportion", "long enough", "cubic", "never", "far too long"],
)
def test_sizes_grow_until_the_clock_resolves_the_calls(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: Callable[[int], CallTimes],
    measured: dict[str, int],
    tried: list[int],
) -> None:
    made = trials(monkeypatch, lambda _, n: times(n))
    request = Request(SOURCE, SOURCE, "n=64, x=randn(n)")
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    [(sized, flag)] = functions.grown(context(tmp_path), [(request, options)])
    assert (dict(sized.sizes), bool(flag)) == (measured, bool(measured))
    assert [n for _, n in made] == tried


@pytest.mark.parametrize("fails", ["raised", "constant"])
def test_sizes_at_which_the_pair_cannot_be_measured_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def answer(candidate: str, n: int) -> CallTimes:
        if fails == "raised" and n > 64:
            raise BenchmarkError("CANDIDATE_RAISED", "The candidate raised: RecursionError.")
        return CallTimes(n * 1e-7, 25.6 / n, varies=n == 64)

    tried = trials(monkeypatch, answer)
    request = Request(SOURCE, SOURCE, "n=64, x=randn(n)")
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    [(sized, flag)] = functions.grown(context(tmp_path), [(request, options)])
    why = {
        "raised": "the candidate raised: RecursionError",
        "constant": "the baseline gives the same output for different inputs",
    }
    assert sized == request
    assert flag is not None
    assert flag.message == (
        f"Measured with n=64, where calls are too short for the parent's clock: with n=128, {why[fails]}."
    )
    assert [n for _, n in tried] == [64, 128]


def test_all_candidates_of_a_baseline_are_measured_at_the_sizes_that_the_fastest_needs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = trials(monkeypatch, lambda name, n: CallTimes(n * 1e-6, 10.2 / n if name == "fast" else 0.01, True))

    def measured(ctx: Context, pairs: list[Pair], *_: Any, about: measure.About, **__: Any) -> Run:
        shared = {"id": "r_1", "created_at": 1.0, "preset": "default", "profile": "portable", "environment": {}}
        shown = {"isolation": "L1", "replicates": 1, "verdict": "same", "sentence": "same"}
        rows = [{**shown, "target": pair.target, "candidate": pair.candidate} for pair in pairs]
        return Run.model_validate({**shared, "kind": about.kind, "comparisons": rows})

    monkeypatch.setattr(measure, "measure", measured)
    names = ("slow", "middle", "fast", "late")
    files = {name: tmp_path / f"{name}.py" for name in names}
    for file in files.values():
        file.write_text(SOURCE)
    inputs = "n=64, x=randn(n,n)"
    requests = [Request(str(files["slow"]), str(files[name]), inputs) for name in names[1:]]
    options = Options(preset=PRESETS["quick"], folder=tmp_path, size="small", device="cpu")
    run = functions.measure_all(context(home), requests, options)
    assert probed == [("middle", 64), ("fast", 64), ("fast", 128), ("fast", 256), ("late", 256)]
    assert [comparison.disclosed["sizes"] for comparison in run.comparisons] == [{"n": 256}] * 3
    assert all("measured at n=256" in comparison.sentence for comparison in run.comparisons)


@pytest.mark.torch
def test_a_trial_times_a_pair_and_gives_no_verdict(tmp_path: Path) -> None:
    """2.3 processor seconds, most of them for torch."""
    sources = [
        "def f(xs):\n    total = 0.0\n    for x in xs:\n        total += x * x\n    return total\n",
        "def f(xs):\n    if len(xs) > 9:\n        raise ValueError('too many')\n    return sum(x * x for x in xs)\n",
    ]
    for name, source in zip(("slow.py", "fast.py"), sources, strict=True):
        (tmp_path / name).write_text(source)

    def times(n: int, longest_s: float = 1.0) -> CallTimes | None:
        request = Request(str(tmp_path / "slow.py"), str(tmp_path / "fast.py"), f"xs=list(randn({n}))")
        folder = tmp_path / str(n)
        options = Options(preset=PRESETS["quick"], folder=folder, size="small", device="cpu")
        return judge.time_calls(plans.write(plans.plan(request), folder), options, longest_s)

    short = times(8)
    assert short is not None
    assert short.varies
    assert short.baseline_s < 1e-4
    assert short.resolution > functions.MAX_RESOLUTION
    assert times(9, longest_s=1e-9) is None
    with pytest.raises(BenchmarkError, match=r"candidate raised.*too many"):
        times(10)
