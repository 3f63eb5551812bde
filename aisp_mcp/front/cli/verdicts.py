"""Verdicts as people read them: the sentence of each and one next step, or all that the clocks and the machine say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aisp_mcp.judge.records.verdict import BEST_FIRST

CLOCKS = {
    "worker": "the worker's clock, median of its calls; the parent's agrees",
    "worker_mean": "the worker's clock, mean of its calls; the parent's agrees",
    "parent": "the parent's clock",
    "with_host": "the parent's clock, host time included",
    "lower_bound": "the parent's clock, as a lower bound",
}
WORKLOAD_NEXT = {
    "faster": "keep the candidate",
    "same": "keep the simpler one",
    "trade-off": "use the candidate in the regimes where it is faster, and the baseline in the others",
    "inconclusive": "repeat it with --preset release, which measures more",
    "slower": "keep the baseline",
}
PROGRAM_NEXT = {
    "does not arrive": "keep the baseline there, and compare the sizes of its calls with --inputs",
    "too small": "look for a function that takes more of its time: aisp profile",
    "not shown": "repeat it with more --replicates, or with --in-step, which times the step alone",
}
# Figures of a step of a loop that its sentence contains.
IN_STEP = ("outcome", "exit_code", "gain", "low", "high", "pairs", "more_runs", "noise", "before", "after", "require")
_EXPLAIN = ("passed", "flags", "noise", "seconds")  # of a run
_EXPLAIN_ROW = ("flags", "isolation", "clock", "at_least")


def is_run(result: Any) -> bool:
    """Return True for the answer of a tool that judged candidates of a run."""
    return isinstance(result, Mapping) and {"run_id", "rulings"} <= set(result)


def is_step(result: Any) -> bool:
    """Return True for the answer of a step of a loop."""
    return isinstance(result, Mapping) and {"outcome", "exit_code", "sentence", "incumbent"} <= set(result)


def brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without what explains it, and with the next step."""
    if workload := result.get("workload"):
        return _workload(result, workload)
    rows = [{name: part for name, part in row.items() if name not in _EXPLAIN_ROW} for row in result["rulings"]]
    shown = {name: part for name, part in result.items() if name not in _EXPLAIN}
    program = result.get("program")
    step = (program and PROGRAM_NEXT.get(program["arrival"])) or next_step(result)
    more = "add --why" if any(result.get(name) for name in ("flags", "noise")) else ""
    return {**shown, "rulings": rows, "next": step, "details": more}


def _workload(result: Mapping[str, Any], workload: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict on the whole workload, and a line for each of its regimes."""
    regimes = [
        {
            "regime": row["label"],
            "launches": row["launches"],
            "share of time": f"{row['share']:.1%}",
            "verdict": row["verdict"],
            "ratio": row["ratio"],
            "interval": row["interval"] and [row["interval"]["low"], row["interval"]["high"]],
        }
        for row in workload["regimes"]
    ]
    of_step = {name: workload[name] for name in ("step_share", "step_ratio") if workload.get(name) is not None}
    said = {"sentence": workload["sentence"], "run_id": result["run_id"], "regimes": regimes}
    program = result.get("program")
    step = (program and PROGRAM_NEXT.get(program["arrival"])) or WORKLOAD_NEXT.get(workload["verdict"], "")
    inside = {"program": program} if program else {}
    return {**said, **of_step, **inside, "notes": workload.get("notes"), "next": step, "details": "add --why"}


def explained(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with each flag in words beside its verdict."""
    said = result.get("flags", {})
    rows = []
    for row in result["rulings"]:
        baseline_s, candidate_s = (*row.get("time_s", []), None, None)[:2]
        facts = {
            "baseline_s": baseline_s,
            "candidate_s": candidate_s,
            "timed_by": CLOCKS.get(row.get("clock", ""), row.get("clock")),
            "a_lower_bound": row.get("at_least") or None,
            "isolated_at": row.get("isolation"),
            "flagged": [said.get(code, code) for code in row.get("flags", [])],
        }
        rows.append({**{name: part for name, part in row.items() if name not in _EXPLAIN_ROW}, **facts})
    return {**{name: part for name, part in result.items() if name != "flags"}, "rulings": rows}


def next_step(result: Mapping[str, Any]) -> str:
    """The next step after the worst verdict; empty if nothing was judged."""
    rows = result["rulings"]
    worst = max(rows, key=lambda row: BEST_FIRST.index(row["verdict"]), default=None)
    if worst is None:
        return ""
    run, verdict = result["run_id"], worst["verdict"]
    if verdict == "inconclusive" and "value_dependent" in worst.get("flags", []) and (worst.get("ratio") or 2.0) <= 1.0:
        return "keep the baseline, or let --inputs and --make draw only what occurs"
    if verdict == "inconclusive" and result.get("noise"):
        return "aisp triage names the processes that use the cores; then repeat it"
    if worst.get("provisional"):
        return "repeat it with --preset default, which can confirm it"
    return {
        "faster": f"keep the candidate; aisp bench export {run} --format markdown writes the report",
        "same": "keep the simpler one; --margin sets a smaller difference that matters to you",
        "inconclusive": "repeat it with --preset release, which measures more, or with larger inputs",
        "slower": "keep the baseline",
        "incorrect": "correct the output that the sentence names, then repeat it",
        "invalid": "remove what the sentence names, then repeat it",
    }[verdict]
