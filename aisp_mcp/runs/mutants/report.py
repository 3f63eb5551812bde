"""Make and judge the mutants of targets, each target in a separate process."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.judge.records import Skip
from aisp_mcp.process import isolation, python
from aisp_mcp.process.run import run
from aisp_mcp.runs.mutants.records import Mutant, MutantReport, TargetMutants
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites import names
from aisp_mcp.suites.records import Target

MODULE = "aisp_mcp.judge.mutants.search"
MOST = 120  # mutants per target
STARTING_S = 120.0  # for loading libraries and the first calls of a slow baseline
Row = TargetMutants | Skip | Failure


def report(ctx: Context, roots: Sequence[Path], name: str, size: str, seconds: float) -> MutantReport:
    """Try the targets that a name selects. seconds: for the mutants of each. Raises as names.resolve."""
    begin, rows = time.monotonic(), list[Row]()
    targets = [target for pattern in names.read([name]) for target, _ in names.resolve(list(roots), pattern.name)]
    for index, target in enumerate(targets):
        ctx.progress(index, len(targets), target.name)
        rows.append(_searched(target, size, seconds))
    reports = [row for row in rows if isinstance(row, TargetMutants)]
    accepted = sum(len(row.accepted) for row in reports)
    return MutantReport(
        passed=not accepted,
        made=sum(row.made for row in reports),
        accepted=accepted,
        targets=reports,
        skipped=[row for row in rows if isinstance(row, Skip)],
        failed=[row for row in rows if isinstance(row, Failure)],
        seconds=time.monotonic() - begin,
    )


def _searched(target: Target, size: str, seconds: float) -> Row:
    if target.problem:
        return Failure(target=target.name, code="UNREADABLE", message=target.problem)
    argv = python.module(MODULE, target.path, size, str(seconds), str(MOST))
    limit = STARTING_S + 3 * seconds
    done = run(isolation.wrap(argv, isolation.demand("auto")), timeout_s=limit, cwd="/", max_output=16 * 2**20)
    if done.timed_out:
        return Failure(target=target.name, code="TIMEOUT", message=f"No answer within {limit:g} s.")
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        return Failure(target=target.name, code="CRASHED", message=f"The search ended without an answer: {tail}")
    return _row(target.name, answer)


def _row(target: str, answer: dict[str, Any]) -> Row:
    if "skipped" in answer:
        return Skip(target=target, code="NEEDS", missing=answer["skipped"])
    if "code" in answer:
        return Failure(target=target, code=answer["code"], message=answer["message"])
    mutants = [Mutant(**fields) for fields in answer["mutants"] if fields["status"] != "not applied"]
    return TargetMutants(
        target=target,
        contract=answer["contract"],
        made=len(mutants),
        rejected=sum(mutant.status == "rejected" for mutant in mutants),
        equivalent=sum(mutant.status in ("equivalent", "within rounding") for mutant in mutants),
        accepted=[mutant for mutant in mutants if mutant.status == "accepted"],
        calls=answer["calls"],
        seconds=answer["seconds"],
    )
