"""Performance gate: the candidates of two commits, measured interleaved in one job.

The base commit's specification defines the computation; the base's candidate serves as the baseline. Each candidate
imports from its own checkout, so a change in a library that a benchmark calls is judged too.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aisp_mcp.errors import NotFound
from aisp_mcp.gate import flames, history, policy, stored_runs
from aisp_mcp.gate import pairs as gate_pairs
from aisp_mcp.gate import rows as gate_rows
from aisp_mcp.gate.pairs import Checkouts
from aisp_mcp.gate.records import GateReport, GateRow, Outcome, Policy
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN
from aisp_mcp.runs import commits, measure
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.run_kind import RunKind


@dataclass(frozen=True)
class GateRequest:
    """Options of a gate run. head: a revision; None for the working tree. roots: bench roots inside the repository."""

    repo: Path
    base: str
    head: str | None
    roots: Sequence[str]
    names: Sequence[str]
    policies: Mapping[Outcome, Policy]
    usd_per_hour: float | None = None


def gate(ctx: Context, request: GateRequest, options: Options) -> GateReport:
    """Measure the benchmarks that both commits have, and judge. Raises NotFound NO_TARGETS_AT_BASE, and as commits
    does.
    """
    begin = time.monotonic()
    margin = MIN_MARGIN if options.margin is None else options.margin
    with tempfile.TemporaryDirectory(prefix="aisp-gate-", ignore_cleanup_errors=True) as temporary:
        work = Path(temporary).resolve()
        checkouts = _checkouts(ctx, request, work)
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
            rows = _explained(gate_rows.rows(run, changed, looks, margin), run, pairs)
    before = history.histories(ctx, run)
    rows = [row.model_copy(update={"history": before.get(row.target, [])}) for row in rows]
    rows += gate_rows.absent_rows([*at_base], [*at_head])
    return _report(run, request, checkouts.both, rows, time.monotonic() - begin)


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
    """All comparisons by target, the first look first. Further looks at apparent slowdowns are separate runs."""
    looks = {comparison.target: [comparison] for comparison in run.comparisons}
    for number in range(2, policy.LOOKS + 1):
        again = [pair for pair in pairs if _needs_look(looks.get(pair.label, []), number, margin)]
        if not again:
            break
        folder = options.folder / f"look-{number}"
        folder.mkdir()
        apart = copy.copy(ctx)
        apart.job_id = None
        about = measure.About(run.kind, run.commits)
        for comparison in measure.measure(apart, again, replace(options, folder=folder), about=about).comparisons:
            looks[comparison.target].append(comparison)
    return looks


def _needs_look(comparisons: list[Comparison], number: int, margin: float) -> bool:
    """Return True if the look with that number could change the outcome, and every earlier one gave a comparison."""
    if len(comparisons) != number - 1:
        return False
    return policy.needs_look([policy.look(comparison) for comparison in comparisons], margin)


def _report(
    run: Run, request: GateRequest, checkouts: tuple[Checkout, Checkout], rows: list[GateRow], seconds: float
) -> GateReport:
    reasons = gate_rows.reasons(rows, request.policies)
    return GateReport(
        run_id=run.id,
        passed=gate_rows.passed(rows, reasons),
        base=checkouts[0].commit,
        head=checkouts[1].commit,
        rows=rows,
        reasons=reasons,
        seconds=seconds,
        cost_usd=None if request.usd_per_hour is None else seconds / 3600 * request.usd_per_hour,
    )
