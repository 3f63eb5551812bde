"""Performance gate: candidates of two commits, measured interleaved in one job, each beside its own code.

The base commit's specification says what is computed; its candidate takes the place of the baseline. Both sides import
from their own checkout, so a change in the library that a benchmark calls is judged, not only one in the benchmark.
"""

from __future__ import annotations

import contextlib
import copy
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from aisp_mcp.errors import BenchmarkError, NotFound
from aisp_mcp.gate.records import GateReport, GateRow, Outcome, Policy
from aisp_mcp.judge.native import build
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.run import Failure, Run, Skip
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN
from aisp_mcp.runs import commits, measure
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.server.context import Context
from aisp_mcp.suites import discovery

OUTCOMES: dict[Verdict, Outcome] = {
    Verdict.FASTER: "improved",
    Verdict.SAME: "unchanged",
    Verdict.SLOWER: "regressed",
    Verdict.INCONCLUSIVE: "could_not_judge",
    Verdict.INCORRECT: "wrong",
    Verdict.INVALID: "wrong",
}
LOOKS = 3  # of which a slowdown must show in each
BROKEN = (Verdict.INCORRECT, Verdict.INVALID)
ALWAYS_FAIL: tuple[Outcome, ...] = ("regressed", "wrong", "failed")

# Both run in the processes of one side, beside nothing else. The base's specification stays the one that says what
# inputs, tolerance and truth are: only run() is the base candidate's.
BASE_SIDE = '''"""{summary}"""
import sys

sys.path.insert(0, {root!r})
from pathlib import Path

import torch

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.loading import common_of, load_candidate, load_common, load_module

load_common(common_of(Path({spec!r})))
_spec = load_module(Path({spec!r}), "aisp_gate_spec")
_side = load_candidate(Path({side!r}))
_class = next(v for v in vars(_spec).values() if isinstance(v, type) and issubclass(v, Benchmark)
              and v.__module__ == _spec.__name__)


class Shapes:
    """An rng whose tensors have no values: it tells which names are static."""

    device = "meta"

    def randn(self, *shape, dtype="float32", **_):
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    rand = randn

    def randint(self, low, high, *shape, dtype="int64", **_):
        return self.randn(*shape, dtype=dtype)

    def permutation(self, n):
        return self.randn(n, dtype="int64")

    def bernoulli(self, p, *shape):
        return self.randn(*shape, dtype="bool")


class Base(_class):
    _static = _names = None

    def run(self, **tensors):
        prepare = getattr(_side, "prepare", None)
        if prepare is None:
            return _side.run(**tensors)
        if self._names is None:
            self._names = frozenset(self.params(Shapes()))
        inputs = {{k: v for k, v in tensors.items() if k not in self._names}}
        if self._static is None:
            params = {{k: v for k, v in tensors.items() if k in self._names}}
            self._static = dict(prepare(params, {{k: v.clone() for k, v in inputs.items()}}))
        return _side.run(**inputs, **self._static)

    def reference(self, **tensors):
        plain = _class()
        plain.__dict__.update(self.__dict__)
        return plain.reference(**tensors)
'''
HEAD_SIDE = '''"""{summary}"""
import sys

sys.path.insert(0, {root!r})
from pathlib import Path

from aisp_mcp.judge.loading import load_candidate

_side = load_candidate(Path({side!r}))
run = _side.run
if hasattr(_side, "prepare"):
    prepare = _side.prepare
'''


@dataclass(frozen=True)
class Request:
    """Options of a gate run. head: a revision; None is the working tree. roots: bench roots inside the repository."""

    repo: Path
    base: str
    head: str | None
    roots: Sequence[str]
    names: Sequence[str]
    policies: Mapping[Outcome, Policy]
    usd_per_hour: float | None = None


@dataclass(frozen=True)
class Side:
    """One candidate at one commit: its specification's file and its own."""

    spec: Path
    path: Path
    summary: str


def gate(ctx: Context, asked: Request, how: Options) -> GateReport:
    """Measure what both commits have, and judge. Raises NotFound NO_TARGETS_AT_BASE, and as commits does."""
    begin = time.monotonic()
    repo = commits.repository(asked.repo)
    with tempfile.TemporaryDirectory(prefix="aisp-gate-", ignore_cleanup_errors=True) as temporary:
        work = Path(temporary).resolve()
        base = commits.export(repo, asked.base, work / "base")
        head = (
            commits.working_tree(repo, work / "head")
            if asked.head is None
            else commits.export(repo, asked.head, work / "head")
        )
        before, after = _sides(base, asked), _sides(head, asked)
        if not before:
            raise NotFound("NO_TARGETS_AT_BASE", f"{base.commit[:12]} has no benchmark that was named.", None)
        shared = [name for name in before if name in after]
        pairs, broken = _pairs({name: (before[name], after[name]) for name in shared}, base, head, work, how.device)
        with contextlib.chdir(work):  # isolated processes see the working folder, wherever it lies
            run = measure.measure(ctx, pairs, how, broken=broken)
            looks = _further_looks(ctx, run, pairs, how)
        changed = {name for name in shared if _differs(before[name].spec, after[name].spec)}
    run = run.model_copy(
        update={"environment": {**run.environment, "commits": {"base": base.commit, "head": head.commit}}}
    )
    ctx.store.save_run(run, ctx.job_id)
    margin = MIN_MARGIN if how.margin is None else how.margin
    rows = [*_rows(run, changed, looks, margin), *_absent(before, after)]
    return _report(run, asked, base.commit, head.commit, rows, time.monotonic() - begin)


def _sides(checkout: Checkout, asked: Request) -> dict[str, Side]:
    """The named candidates of a checkout by full name; names that it lacks are left to the comparison of both."""
    sides: dict[str, Side] = {}
    for root in asked.roots:
        folder = checkout.folder / root
        if not folder.is_dir():
            continue
        for name in asked.names:
            try:
                chosen = discovery.resolve(folder, [name])
            except NotFound:
                continue
            for target, variants in chosen:
                for variant in variants:
                    if not target.problem and not variant.problem:
                        side = Side(Path(target.path), Path(variant.path), target.summary)
                        sides[discovery.full_name(target, variant)] = side
    return sides


def _pairs(
    sides: Mapping[str, tuple[Side, Side]], base: Checkout, head: Checkout, work: Path, device: str
) -> tuple[list[Pair], list[Failure | Skip]]:
    """Pairs to measure, with C++ and CUDA sides compiled, and those that cannot be."""
    pairs, broken = list[Pair](), list[Failure | Skip]()
    for name, both in sides.items():
        lacks = [build.lacks(side.path, device) for side in both if build.is_native(side.path)]
        if missing := next(filter(None, lacks), None):
            broken.append(Skip(target=name, code="NEEDS", missing=missing))
            continue
        try:
            before, after = (replace(side, path=_runnable(name, side)) for side in both)
        except BenchmarkError as error:
            broken.append(Failure(target=name, code=error.code, message=error.message, hint=error.hint))
            continue
        pairs.append(_pair(name, before, after, base, head, work))
    return pairs, broken


def _runnable(name: str, side: Side) -> Path:
    return build.prepared(Pair(name, side.spec, "", side.path))[0].path


def _pair(name: str, before: Side, after: Side, base: Checkout, head: Checkout, work: Path) -> Pair:
    folder = work / "pairs" / name.replace(":", "/")
    folder.mkdir(parents=True)
    spec, candidate = folder / "baseline_side.py", folder / "optimized_side.py"
    summary = before.summary.replace('"', "'").replace("\\", "")
    said = {"summary": summary, "spec": str(before.spec)}
    spec.write_text(BASE_SIDE.format(**said, root=str(base.folder), side=str(before.path)), "utf-8")
    candidate.write_text(HEAD_SIDE.format(**said, root=str(head.folder), side=str(after.path)), "utf-8")
    return Pair(name, spec, "", candidate)


def _further_looks(ctx: Context, run: Run, pairs: list[Pair], how: Options) -> dict[str, list[Comparison]]:
    """Fresh comparisons of what seems slower, by target, the first look before them; kept as runs of their own."""
    looks = {comparison.target: [comparison] for comparison in run.comparisons if _seems_slower(comparison)}
    for number in range(2, LOOKS + 1):
        again = [pair for pair in pairs if len(looks.get(pair.label, [])) == number - 1]
        again = [pair for pair in again if shows_slowdown(looks[pair.label][-1])]
        if not again:
            break
        folder = how.folder / f"look-{number}"
        folder.mkdir()
        apart = copy.copy(ctx)
        apart.job_id = None
        for comparison in measure.measure(apart, again, replace(how, folder=folder)).comparisons:
            looks[comparison.target].append(comparison)
    return looks


def _differs(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def _rows(run: Run, changed: set[str], looks: Mapping[str, Sequence[Comparison]], margin: float) -> list[GateRow]:
    rows = [
        _row(comparison, comparison.target in changed, looks.get(comparison.target, [comparison]), margin)
        for comparison in run.comparisons
    ]
    rows += [
        GateRow(target=one.target, outcome="could_not_judge", sentence=f"skipped: needs {one.missing}")
        for one in run.skipped
    ]
    return rows + [
        GateRow(target=one.target, outcome="failed", sentence=f"{one.code}: {one.message}") for one in run.failed
    ]


def _row(comparison: Comparison, spec_changed: bool, looks: Sequence[Comparison], margin: float) -> GateRow:
    outcome, sentence = OUTCOMES[comparison.verdict], comparison.sentence
    if outcome == "regressed" or len(looks) > 1:
        outcome, sentence = judged(looks, margin)
    return GateRow(
        target=comparison.target,
        outcome=outcome,
        sentence=sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        noise_floor=comparison.noise_floor,
        resolution=resolution(comparison),
        spec_changed=spec_changed,
    )


def resolution(comparison: Comparison) -> float | None:
    """Slowdown that every look shows in nine of ten gates, with this look's noise, as a fraction."""
    if comparison.ratio is None or comparison.interval is None:
        return None
    half = (comparison.interval.high - comparison.interval.low) / 2 / comparison.ratio
    return half + max(half, comparison.noise_floor or 0.0)


def judged(looks: Sequence[Comparison], margin: float) -> tuple[Outcome, str]:
    """A slowdown fails only if both clocks of the first look and all looks show it; one interval in 40 lies below 1.

    margin: a fraction that the mean of the looks must exceed. Where two clocks disagree the harness counts the one that
    favours a candidate less. That refuses doubtful gains, and would invent losses.
    """
    one = looks[0]
    if _doubted(one):
        return "could_not_judge", f"{one.sentence}; one of both clocks shows no slowdown"
    for number, again in enumerate(looks[1:], 2):
        if again.verdict in BROKEN:
            return OUTCOMES[again.verdict], again.sentence
        if not shows_slowdown(again):
            return "could_not_judge", f"{one.sentence}; look {number} did not confirm it: {again.sentence}"
    if len(looks) < LOOKS:
        return "could_not_judge", f"{one.sentence}; a further look gave no comparison"
    mean = math.exp(fmean(math.log(look.ratio) for look in looks if look.ratio))
    if mean * (1.0 + margin) >= 1.0:
        return "could_not_judge", f"{one.sentence}; {mean:.3f}x over {LOOKS} looks is within the margin"
    return "regressed", f"{mean:.3f}x over {LOOKS} looks, which all show a slowdown; the first: {one.sentence}"


def shows_slowdown(comparison: Comparison) -> bool:
    """True for a slowdown of any size that the interval, and the run's noise floor, cannot explain."""
    if comparison.ratio is None or comparison.interval is None:
        return False
    return comparison.interval.high < 1.0 and comparison.ratio * (1.0 + (comparison.noise_floor or 0.0)) < 1.0


def _seems_slower(comparison: Comparison) -> bool:
    return (
        comparison.verdict in (Verdict.SLOWER, Verdict.INCONCLUSIVE)
        and shows_slowdown(comparison)
        and not _doubted(comparison)
    )


def _doubted(comparison: Comparison) -> bool:
    """True where one of both clocks shows no slowdown."""
    return (
        comparison.clocks is not None
        and max(comparison.clocks.ratio_parent, comparison.clocks.ratio_worker or 0.0) >= 1.0
    )


def _absent(before: Mapping[str, Side], after: Mapping[str, Side]) -> list[GateRow]:
    gone = [
        GateRow(target=name, outcome="missing", sentence="The head has no such benchmark.")
        for name in before
        if name not in after
    ]
    return gone + [
        GateRow(target=name, outcome="new", sentence="The base has no such benchmark: nothing to compare with.")
        for name in after
        if name not in before
    ]


def _report(run: Run, asked: Request, base: str, head: str, rows: list[GateRow], seconds: float) -> GateReport:
    policies: dict[Outcome, Policy] = {**asked.policies, **dict.fromkeys(ALWAYS_FAIL, "fail")}
    reasons = [
        f"{policies[row.outcome]}: {row.target} {row.outcome.replace('_', ' ')}: {row.sentence}"
        for row in rows
        if policies.get(row.outcome, "pass") != "pass"
    ]
    return GateReport(
        run_id=run.id,
        passed=not any(reason.startswith("fail") for reason in reasons),
        base=base,
        head=head,
        rows=rows,
        reasons=reasons,
        seconds=seconds,
        cost_usd=None if asked.usd_per_hour is None else seconds / 3600 * asked.usd_per_hour,
    )
