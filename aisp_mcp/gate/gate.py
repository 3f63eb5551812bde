"""Performance gate: the candidates of two commits, measured interleaved in one job.

The base commit's specification defines the computation; the base's candidate serves as the baseline. Each candidate
imports from its own checkout, so a change in a library that a benchmark calls is judged too.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aisp_mcp.errors import NotFound
from aisp_mcp.gate import flames, history, policy, serving, stored_runs
from aisp_mcp.gate import pairs as gate_pairs
from aisp_mcp.gate.pairs import Checkouts, head_needs
from aisp_mcp.gate.records import GateReport, GateRow, Outcome, Policy
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records import CANDIDATE_NEEDS, Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN
from aisp_mcp.runs import commits, measure
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.verdict_row import RunKind
from aisp_mcp.system import cpu


@dataclass(frozen=True)
class GateRequest:
    """Options of a gate run. head: a revision; None for the working tree. roots: bench roots inside the repository.
    strict: a change of which nothing could be judged does not pass. serve: the command of a server, which is judged
    at both commits instead of benchmarks.
    """

    repo: Path
    base: str
    head: str | None
    roots: Sequence[str]
    names: Sequence[str]
    policies: Mapping[Outcome, Policy]
    usd_per_hour: float | None = None
    strict: bool = False
    serve: str | None = None


def gate(ctx: Context, request: GateRequest, options: Options) -> GateReport:
    """Measure the benchmarks that both commits have, and judge. Raises NotFound NO_TARGETS_AT_BASE, and as commits
    does.
    """
    begin = time.monotonic()
    margin = MIN_MARGIN if options.margin is None else options.margin
    with tempfile.TemporaryDirectory(prefix="aisp-gate-", ignore_cleanup_errors=True) as temporary:
        work = Path(temporary).resolve()
        checkouts = _checkouts(ctx, request, work)
        if request.serve is not None:
            return _served(ctx, request, checkouts, options, begin)
        at_base, at_head = (
            gate_pairs.find_candidates(checkout, request.roots, request.names) for checkout in checkouts.both
        )
        if not at_base:
            raise _no_targets(request, checkouts.base)
        shared = {name: (files, at_head[name]) for name, files in at_base.items() if name in at_head}
        pairs, broken = gate_pairs.make_pairs(shared, checkouts, options.device)
        about = measure.About(RunKind.GATE, {"base": checkouts.base.commit, "head": checkouts.head.commit})
        with contextlib.chdir(work):  # isolated processes see the working folder, wherever it is
            run = measure.measure(ctx, pairs, options, broken=broken, about=about)
            looks = _further_looks(ctx, run, pairs, options, margin)
        changed = {name for name, both in shared.items() if not gate_pairs.have_same_spec(*both)}
        with contextlib.chdir(work):
            rows = _explained(gate_rows(run, changed, looks, margin), run, pairs)
        run = _with_looks(run, looks, rows)
        ctx.store.save_run(run, ctx.job_id)
    before = history.histories(ctx, run)
    rows = [row.model_copy(update={"history": before.get(row.target, [])}) for row in rows]
    rows += absent_rows([*at_base], [*at_head])
    return _report(run, request, checkouts.both, rows, time.monotonic() - begin)


def _served(ctx: Context, request: GateRequest, checkouts: Checkouts, options: Options, begin: float) -> GateReport:
    """The report about one server at both commits."""
    about = measure.About(RunKind.GATE, {"base": checkouts.base.commit, "head": checkouts.head.commit})
    row = serving.row(ctx, request.serve or "", checkouts.both, options.folder / "servers")
    run = measure.measure(ctx, [], options, about=about)
    return _report(run, request, checkouts.both, [row], time.monotonic() - begin)


def _no_targets(request: GateRequest, base: Checkout) -> NotFound:
    """The error for a base without benchmark pairs, or without the named ones."""
    if known := gate_pairs.find_candidates(base, request.roots, ["*"]):
        message = f"{request.base} ({base.commit[:12]}) has no benchmark that matches {', '.join(request.names)}."
        return NotFound("NO_TARGETS_AT_BASE", message, f"It has {', '.join(list(known)[:8])}.")
    message = (
        f"{request.base} ({base.commit[:12]}) has no benchmark pairs (baseline_NAME.py next to optimized_NAME.py)."
    )
    hint = (
        f"Tests with the fixture `benchmark` or `aisp_bench` run with `pytest --aisp --aisp-base {request.base}`. "
        "If the repository has none, `aisp gate init` shows how to begin."
    )
    return NotFound("NO_TARGETS_AT_BASE", message, hint)


def _explained(rows: list[GateRow], run: Run, pairs: list[Pair]) -> list[GateRow]:
    """The rows; those that regressed most with the difference of both commits' flame graphs."""
    regressed = [(row.target, row.ratio) for row in rows if row.outcome == "regressed"]
    sizes = {comparison.label: str(comparison.disclosed.get("size", "")) for comparison in run.comparisons}
    chosen = flames.most_regressed(regressed)
    texts = {pair.label: flames.difference(pair, sizes[pair.label]) for pair in pairs if pair.label in chosen}
    return [row.model_copy(update={"flame": texts.get(row.target)}) for row in rows]


def _checkouts(ctx: Context, request: GateRequest, work: Path) -> Checkouts:
    """Base and head as folders below work."""
    if stored := stored_runs.runs(ctx, request.base, request.head):
        base, head = (
            stored_runs.checkout(ctx, run, work / name) for run, name in zip(stored, ("base", "head"), strict=True)
        )
        return Checkouts(base, head, work, tree=work)
    repo = commits.repository(request.repo).resolve()
    base = commits.export(repo, request.base, work / "base")
    if request.head is None:
        head = commits.working_tree(repo, work / "head")
    else:
        head = commits.export(repo, request.head, work / "head")
    return Checkouts(base, head, work, tree=repo)


def _further_looks(
    ctx: Context, run: Run, pairs: list[Pair], options: Options, margin: float
) -> dict[str, list[Comparison]]:
    """All comparisons by target, the first look first."""
    looks = {comparison.target: [comparison] for comparison in run.comparisons}
    for number in range(2, policy.LOOKS + 1):
        again = [pair for pair in pairs if _needs_look(looks.get(pair.label, []), number, margin)]
        if not again:
            break
        folder = options.folder / f"look-{number}"
        folder.mkdir()
        ctx.progress(0, 1, f"look {number} of {policy.LOOKS} at {', '.join(pair.label for pair in again[:3])}")
        about = measure.About(run.kind, run.commits, part_of=run.id)
        for comparison in measure.measure(ctx, again, replace(options, folder=folder), about=about).comparisons:
            looks[comparison.target].append(comparison)
    return looks


def _with_looks(run: Run, looks: Looks, rows: Sequence[GateRow]) -> Run:
    """The run, in which each comparison has its outcome and what the looks at it found."""
    outcomes = {row.target: row.outcome for row in rows}
    compared = []
    for comparison in run.comparisons:
        seen = [_seen(look) for look in looks.get(comparison.target, [])]
        facts = {"outcome": outcomes[comparison.target], **({"looks": seen} if len(seen) > 1 else {})}
        compared.append(comparison.model_copy(update={"disclosed": {**comparison.disclosed, **facts}}))
    return run.model_copy(update={"comparisons": compared})


def _seen(look: Comparison) -> str:
    interval = f" [{numbers.ratio(look.interval.low)}, {numbers.ratio(look.interval.high)}]" if look.interval else ""
    return f"{look.verdict.value} {numbers.ratio(look.ratio, look.at_least)}{interval}"


def _needs_look(comparisons: list[Comparison], number: int, margin: float) -> bool:
    """Return True if the look with that number could change the outcome, and every earlier one gave a comparison."""
    if len(comparisons) != number - 1:
        return False
    return policy.needs_look([policy.look(comparison) for comparison in comparisons], margin)


def _report(
    run: Run, request: GateRequest, checkouts: tuple[Checkout, Checkout], rows: list[GateRow], seconds: float
) -> GateReport:
    reasons = blocking_reasons(rows, request.policies)
    outcome = passed(rows, reasons)
    if outcome is None and request.strict:
        outcome, reasons = False, [*reasons, "fail: nothing could be judged"]
    return GateReport(
        run_id=run.id,
        passed=outcome,
        sentence=_sentence(outcome, rows),
        base=checkouts[0].commit,
        head=checkouts[1].commit,
        rows=rows,
        reasons=reasons,
        seconds=seconds,
        cost_usd=None if request.usd_per_hour is None else seconds / 3600 * request.usd_per_hour,
    )


def _sentence(outcome: bool | None, rows: Sequence[GateRow]) -> str:
    judged = sum(row.outcome in JUDGED for row in rows)
    why = cpu.load_words() if any(row.outcome == "could_not_judge" for row in rows) else ""
    word = {True: "The change passed: judged", False: "The change did not pass: judged", None: "Judged"}[outcome]
    return f"{word} {judged} of {len(rows)}{why}"


JUDGED: tuple[Outcome, ...] = ("improved", "unchanged", "regressed", "wrong")
IMPRECISE = ("UNSTABLE", "DEGENERATE")  # refusals of a baseline whose output is far from the reference
Looks = Mapping[str, Sequence[Comparison]]  # by target, the first look first


def gate_rows(run: Run, changed_specs: set[str], looks: Looks, margin: float) -> list[GateRow]:
    """One row for each benchmark that both commits have. changed_specs: targets whose specification differs."""
    compared = [
        _row(comparison, comparison.target in changed_specs, looks.get(comparison.target, [comparison]), margin)
        for comparison in run.comparisons
    ]
    skipped = [_skipped(skip) for skip in run.skipped]
    return compared + skipped + [_failed(failure) for failure in run.failed]


def absent_rows(base_names: Sequence[str], head_names: Sequence[str]) -> list[GateRow]:
    """Rows for the benchmarks that only one of the commits has."""
    missing = [name for name in base_names if name not in head_names]
    new = [name for name in head_names if name not in base_names]
    return [
        *(GateRow(target=name, outcome="missing", sentence="The head has no such benchmark.") for name in missing),
        *(
            GateRow(target=name, outcome="new", sentence="The base has no such benchmark: nothing to compare with.")
            for name in new
        ),
    ]


def blocking_reasons(gate_rows: Sequence[GateRow], policies: Mapping[Outcome, Policy]) -> list[str]:
    """Reasons why the change does not pass, and warnings; a reason that begins with "fail" fails it."""
    every: dict[Outcome, Policy] = {**policies, **dict.fromkeys(policy.ALWAYS_FAIL, "fail")}
    return [
        f"{every[row.outcome]}: {row.target} {row.outcome.replace('_', ' ')}: {row.sentence}"
        for row in gate_rows
        if every.get(row.outcome, "pass") != "pass"
    ]


def passed(gate_rows: Sequence[GateRow], why: Sequence[str]) -> bool | None:
    """False if a reason fails the change, and None if nothing could be judged, which is not a pass either."""
    if any(reason.startswith("fail") for reason in why):
        return False
    return True if any(row.outcome in JUDGED for row in gate_rows) else None


def _failed(failure: Failure) -> GateRow:
    """The row of a failure; the baseline that the judge may refuse is the candidate of the base."""
    why = "The base's version, which is the baseline here, may be incorrect. " if failure.code in IMPRECISE else ""
    return GateRow(target=failure.target, outcome="failed", sentence=f"{failure.code}: {why}{failure.message}")


def _skipped(skip: Skip) -> GateRow:
    """The row of a skip. What the candidate needs beyond the specification, only the head needs: the base has run."""
    if skip.code == CANDIDATE_NEEDS:
        return GateRow(target=skip.target, outcome="failed", sentence=f"HEAD_NEEDS: {head_needs(skip.missing)}")
    return GateRow(target=skip.target, outcome="could_not_judge", sentence=f"skipped: needs {skip.missing}")


def _row(comparison: Comparison, spec_changed: bool, looks: Sequence[Comparison], margin: float) -> GateRow:
    outcome, sentence = policy.OUTCOMES[comparison.verdict], comparison.sentence
    if broken := next((look for look in looks if look.verdict in policy.BROKEN), None):
        outcome, sentence = policy.OUTCOMES[broken.verdict], broken.sentence
    elif outcome == "regressed" or len(looks) > 1:
        outcome, reason = policy.judge_looks([policy.look(look) for look in looks], margin)
        sentence = f"{reason}; the first: {sentence}"
    return GateRow(
        target=comparison.target,
        outcome=outcome,
        sentence=sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        at_least=comparison.at_least,
        noise_floor=comparison.noise_floor,
        resolution=policy.resolution(comparison.ratio, comparison.interval, comparison.noise_floor),
        spec_changed=spec_changed,
    )
