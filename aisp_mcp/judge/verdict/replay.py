"""A comparison computed again from its log, on any machine. Pure functions.

Rounds, traces and cold starts are read from their own records; `records()` gives the others that a verdict depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from aisp_mcp.judge.evidence import (
    Account,
    DeviceEvidence,
    Overhead,
    Replicate,
    Round,
    RoundTiming,
    ServedReplicate,
    ServedRequest,
    ServedTrace,
)
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict.conclude import Terms, conclude

Records = Sequence[Mapping[str, Any]]
TIMED = ("round", "trace", "cold")  # kinds of records that each describe a timed round
READ_FROM_ROUNDS = ("index", "rounds", "traces")


def records(
    terms: Terms, replicates: Sequence[Replicate], flags: Sequence[Flag], sources: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, fields) of the records from which, with the timed rounds, conclude() computes the same comparison again.

    flags: those passed to conclude(). sources: SHA-256 of the measured files, by their names in a run.
    """
    for replicate in replicates:
        rest = {field.name: getattr(replicate, field.name) for field in fields(replicate)}
        values = {name: value for name, value in rest.items() if name not in READ_FROM_ROUNDS}
        dicts = {"overhead": asdict(replicate.overhead), "device": asdict(replicate.device)}
        yield "replicate", {"replicate": replicate.index, **values, **dicts}
    yield (
        "terms",
        {
            "target": terms.pair.target,
            "candidate": terms.pair.candidate,
            "preset": asdict(terms.preset),
            "protections": asdict(terms.protections),
            "facts": terms.opened["facts"],
            "isolation": terms.isolation,
            "cores": terms.cores,
            "margin": terms.margin,
            "phases": terms.phases,
            "flags": [flag.model_dump(mode="json") for flag in flags],
            "sources": dict(sources),
        },
    )


def replay(log: Records) -> Comparison:
    """The comparison that follows from the records of its log. Raises ValueError, KeyError or TypeError for malformed
    ones.
    """
    (terms,) = (record for record in log if record["kind"] == "terms")
    (opened,) = (record["opened"] for record in log if record["kind"] == "open")
    (last,) = (record for record in log if record["kind"] == "verdict")
    preset = Preset(**{**terms["preset"], "looks": tuple(terms["preset"]["looks"])})
    conditions = Terms(
        Pair(terms["target"], Path(), terms["candidate"], Path()),
        preset,
        Protections(**terms["protections"]),
        cast(OpenAnswer, {**opened, "facts": terms["facts"]}),
        terms["isolation"],
        terms["cores"],
        terms["margin"],
        terms["phases"],
    )
    timed = [record for record in log if record["kind"] in TIMED]
    replicates = [_replicate(record, timed) for record in log if record["kind"] == "replicate"]
    if {record["replicate"] for record in timed} - {replicate.index for replicate in replicates}:
        raise ValueError("there are rounds of a replicate that was left out")
    flags = [Flag.model_validate(flag) for flag in terms["flags"]]
    if len(replicates) not in (preset.replicates, *preset.looks) and all(flag.severity != "fatal" for flag in flags):
        raise ValueError(f"there are {len(replicates)} replicates where {preset.replicates} were planned")
    result = conclude(conditions, replicates, flags)
    disclosed = {**result.disclosed, **last["disclosed"]}
    return result.model_copy(update={"disclosed": disclosed, "seconds": last["seconds"]})


def _replicate(record: Mapping[str, Any], timed: Records) -> Replicate:
    index, rest = record["replicate"], {k: v for k, v in record.items() if k not in ("kind", "prev", "replicate")}
    own = [row for row in timed if row["replicate"] == index]
    overhead = Overhead(**rest.pop("overhead"))
    device = DeviceEvidence(**{name: _by_role(value) for name, value in rest.pop("device").items()})
    common = {name: _by_role(value) for name, value in rest.items() if name != "alone_s"}
    values = {**common, "overhead": overhead, "device": device, "rounds": [_round(row, overhead) for row in own]}
    if "alone_s" not in rest:
        return Replicate(index, **values)
    traces = [_trace(row) for row in own]
    return ServedReplicate(index, **values, traces=traces, alone_s=rest["alone_s"])


def _by_role(value: Any) -> Any:
    """The value; a table by role gets roles as keys."""
    if isinstance(value, dict) and value and value.keys() <= set(Role):
        return {Role(key): entry for key, entry in value.items()}
    return value


def _round(record: Mapping[str, Any], overhead: Overhead) -> Round:
    """A timed round as the parent measured it."""
    role, elapsed_s = Role(record["side"]), record["elapsed_s"]
    account = Account(**record["account"])
    if record["kind"] == "round":
        aside = record.get("converted_s", 0.0), record.get("settled_s", 0.0)
        rest = record["copied_s"], record["late_s"], *aside, record.get("converted", 0)
        apart = [record["apart_ns"]] if "apart_ns" in record else []
        timing = RoundTiming(record["count"], elapsed_s, record["durations_ns"], account, *rest, apart_ns=apart)
        return Round(role, net_s(role, timing, overhead), median_s(timing), timing)
    durations = [int(1e9 * elapsed_s)]
    if record["kind"] == "trace":
        durations = [round(1e9 * request.e2e) for request in _trace(record).requests]
    seconds = elapsed_s / len(durations)
    return Round(role, seconds, seconds, RoundTiming(len(durations), elapsed_s, durations, account))


def _trace(record: Mapping[str, Any]) -> ServedTrace:
    rows = zip(record["arrived_s"], record["stamps_s"], strict=True)
    requests = tuple(ServedRequest(arrived, tuple(stamps)) for arrived, stamps in rows)
    return ServedTrace(Role(record["side"]), requests, record["look_s"])


def median_s(timing: RoundTiming) -> float:
    """Seconds of the median call on the worker's clock."""
    return sorted(timing.durations_ns)[timing.count // 2] / 1e9


def net_s(role: Role, timing: RoundTiming, overhead: Overhead) -> float:
    """Seconds per call on the parent's clock. Only a baseline's report of its own copies is believed."""
    copied_s = overhead.credited_s * timing.count if role is Role.CANDIDATE else timing.copied_s
    return overhead.net(timing.running_s - copied_s, timing.count)
