"""Candidates that were judged invalid are not run again until a person has cleared them.

A candidate is identified by the hash of its file, so renaming or copying it changes nothing. To clear it, delete the
record by hand: no tool does so.
"""

from __future__ import annotations

import json
from pathlib import Path

from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.server.context import Context
from aisp_mcp.store.files import write_atomic
from aisp_mcp.store.records.run import Failure


def _record(ctx: Context, pair: Pair) -> Path:
    digest = pair.candidate_sha256()
    return ctx.settings.home / "quarantine" / f"{digest[:16]}.json"


def barred(ctx: Context, pair: Pair) -> Failure | None:
    """Reason why this candidate is not run, or None. A record that a person has damaged still bars it."""
    record = _record(ctx, pair)
    if not record.exists():
        return None
    try:
        known = json.loads(record.read_text("utf-8"))
        why = f"run {known['run']}, {known['sentence']}"
    except (ValueError, KeyError, TypeError):
        why = "its record cannot be read"
    return Failure(
        target=pair.label,
        code="QUARANTINED",
        message=f"This candidate was judged invalid before and is not run again: {why}.",
        hint=f"Read the evidence; to clear it, a person deletes {record}.",
    )


def keep(ctx: Context, pair: Pair, comparison: Comparison, run_id: str) -> None:
    """Bar a candidate that was judged invalid, with the evidence."""
    if comparison.verdict is not Verdict.INVALID:
        return
    evidence = {
        "run": run_id,
        "target": pair.label,
        "sentence": comparison.sentence,
        "flags": [flag.model_dump(mode="json") for flag in comparison.flags],
        "log": comparison.log_path,
        "log_sha256": comparison.log_sha256,
        "at": ctx.clock(),
    }
    record = _record(ctx, pair)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(record, json.dumps(evidence, indent=1))
