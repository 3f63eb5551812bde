"""Coverage of the suites: every candidate with its goal, needs, expectations and last verdict per device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import OF_TARGETS
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import expectations, names
from aisp_mcp.suites.records import Target

RUNS = 500  # number of stored runs to search, newest first
FOLDER = "results"
MAX_BYTES = 8 << 20  # a larger file is not a record of verdicts


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
    stored, records = _last_verdicts(ctx), _recorded_verdicts(roots)
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


def _recorded_verdicts(roots: suites.Roots) -> dict[str, dict[str, str]]:
    """Candidate to device to the verdict of the newest record in a folder `results/` next to the suites; files of other
    forms are skipped.
    """
    folders = {Path(root).resolve().parent / FOLDER for root in ([roots] if isinstance(roots, Path) else roots)}
    bodies = [body for folder in sorted(folders) for path in sorted(folder.glob("*.json")) if (body := _record(path))]
    by_target: dict[str, dict[str, str]] = {}
    for body in sorted(bodies, key=lambda body: str(body.get("date"))):
        changed = set(map(str, body.get("candidates changed afterwards", ())))
        device = str(body["device"]).partition(",")[0]
        for name, verdict in _recorded_rows(body):
            if name not in changed:
                by_target.setdefault(name, {})[device] = verdict
    return by_target


def _record(path: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(path.read_text("utf-8")) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) and "device" in body else None


def _recorded_rows(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of candidates and their verdicts, of both forms: an object by name, or a list of rows."""
    candidates, rows = body.get("candidates"), body.get("rows")
    for name, value in candidates.items() if isinstance(candidates, dict) else ():
        if isinstance(value, dict) and "verdict" in value:
            yield name, str(value["verdict"])
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and {"target", "candidate", "verdict"} <= row.keys():
            yield f"{row['target']}_{row['candidate']}".rstrip("_"), str(row["verdict"])
