"""A comparison that was never measured, with the log that the judge would have written of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.evidence import Account, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict import replay
from aisp_mcp.judge.verdict.conclude import Terms, conclude

OPENED = {
    "goal": "speed", "work": {"flops": 1e6, "bytes": 0.0, "items": 0.0}, "unit": "items", "error_ratio": 24.0,
    "facts": {"torch": "2"}, "oracle": "float64",
}  # fmt: skip
CALL_S, CALLS, ROUNDS = 1e-3, 6, 4
LUCK = (0.996, 1.003, 0.999, 1.005, 0.998)  # of one process of each replicate


def timing(seconds: float) -> RoundTiming:
    total_s = CALLS * seconds
    return RoundTiming(CALLS, total_s, [round(1e9 * seconds)] * CALLS, Account(total_s, 0, 0, 1, 1, 0.0, total_s))


def replicate(index: int, ratio: float) -> Replicate:
    """A replicate in which the baseline takes `ratio` times as long as the candidate."""
    overhead, luck = Overhead(0.0, 0.0), LUCK[index]
    seconds = {
        Role.BASELINE: CALL_S * luck,
        Role.BASELINE_REPEAT: CALL_S / luck,
        Role.CANDIDATE: CALL_S / ratio * luck,
    }
    timings = [(role, timing(seconds[role])) for _ in range(ROUNDS) for role in (*Role, *reversed(Role))]
    rounds = [Round(role, replay.net_s(role, one, overhead), replay.median_s(one), one) for role, one in timings]
    isolated = {role: [value] * 5 for role, value in seconds.items()}
    handoffs_s = {role: [1e-6] * 5 for role in Role}
    return Replicate(
        index, checked=30, rounds=rounds, overhead=overhead, isolated=isolated, handoffs_s=handoffs_s, worst_ratio=0.5
    )


def measure(pair: Pair, folder: Path, ratios: Sequence[float]) -> Comparison:
    """The comparison of these replicates, and its log in the folder. The files of the pair exist."""
    replicates = [replicate(index, ratio) for index, ratio in enumerate(ratios)]
    log = ChainLog(folder / f"{pair.label.replace(':', '-')}.rounds.jsonl")
    log.append("open", target=pair.label, preset="default", opened=OPENED)
    for one in replicates:
        for turn, row in enumerate(one.rounds):
            record = {**vars(row.timing), "account": vars(row.timing.account)}
            del record["apart_ns"]  # of several ranks
            log.append("round", replicate=one.index, turn=turn, side=row.role, **record)
    terms = Terms(pair, PRESETS["default"], ALL, OPENED, "L3", 1, None, {"measure": 1.0})  # type: ignore[arg-type]
    comparison = conclude(terms, replicates, [])
    for kind, fields in replay.records(terms, replicates, [], pair.sources()):
        log.append(kind, **fields)
    log.append("verdict", verdict=comparison.verdict, ratio=comparison.ratio, disclosed={"size": "small"}, seconds=2.5)
    log.close()
    update = {"disclosed": {**comparison.disclosed, "size": "small"}, "seconds": 2.5}
    return comparison.model_copy(update={**update, "log_path": str(log.path), "log_sha256": log.head})
