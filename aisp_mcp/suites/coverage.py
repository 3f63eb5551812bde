"""Coverage of the suites: every candidate with its goal, needs, expectations and last verdict per device."""

from __future__ import annotations

from collections.abc import Iterator

from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.run_kind import OF_TARGETS
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import expectations, names, recorded
from aisp_mcp.suites.records import Target

RUNS = 500  # number of stored runs to search, newest first


class Covered(Record):
    """One candidate. verdicts: device to the latest verdict, from stored runs and from records next to the suites."""

    chapter: str
    candidate: str
    goal: str
    needs: str
    expected_on: list[str]
    verdicts: dict[str, str]


def table(ctx: Context, roots: suites.Roots, chapter: str | None = None) -> list[Covered]:
    """One row per candidate, by chapter and name. Raises NotFound UNKNOWN_CHAPTER."""
    targets = suites.find_targets(roots)
    if chapter is not None:
        targets = names.in_chapter(targets, chapter)
    expected: dict[str, list[str]] = {}
    for entry in expectations.load(targets):
        expected.setdefault(entry.candidate, []).append(entry.device)
    stored, records = _last_verdicts(ctx), recorded.verdicts(roots)
    last = {name: {**records.get(name, {}), **stored.get(name, {})} for name in {*stored, *records}}
    return [row for target in targets for row in _rows(target, expected, last)]


def _rows(target: Target, expected: dict[str, list[str]], last: dict[str, dict[str, str]]) -> Iterator[Covered]:
    for variant in target.variants:
        name = suites.full_name(target, variant)
        needs = {**target.needs, **variant.needs}
        yield Covered(
            chapter=target.chapter,
            candidate=name,
            goal=target.goal,
            needs=", ".join(f"{key} {value}" for key, value in needs.items()),
            expected_on=expected.get(name, []),
            verdicts=last.get(name, {}),
        )


def _last_verdicts(ctx: Context) -> dict[str, dict[str, str]]:
    """Candidate to device to the newest verdict; a provisional one only if there is no other."""
    confirmed: dict[str, dict[str, str]] = {}
    hints: dict[str, dict[str, str]] = {}
    for run in _target_runs(ctx):
        for comparison in run.comparisons:
            provisional = run.is_provisional(comparison)
            verdicts = (hints if provisional else confirmed).setdefault(comparison.label, {})
            verdicts.setdefault(device(run), comparison.verdict.value + (" (provisional)" if provisional else ""))
    return {label: {**hints.get(label, {}), **confirmed.get(label, {})} for label in {*hints, *confirmed}}


def _target_runs(ctx: Context) -> Iterator[Run]:
    """The newest runs whose verdicts are about targets of suites."""
    cursor, count = None, 0
    while count < RUNS:
        runs, cursor = ctx.store.list_runs(Run, 50, cursor)
        yield from (run for run in runs if run.kind in OF_TARGETS)
        count += len(runs)
        if cursor is None:
            return


def device(run: Run) -> str:
    """`NVIDIA H200`, or `cpu` with the processor's name."""
    return str(run.gpus[0].get("name")) if run.gpus else f"cpu {run.host.get('cpu') or ''}".strip()
