"""Compare stub servers with planted differences, and record which verdict each gets.

    python validation/run_serving_verdicts.py LOAD_CLIENT > serving-verdicts.json

LOAD_CLIENT: a program that is called as guidellm is. Requests are really sent; the servers are the stub with known
latencies, with a cap on requests at once, slower tokens, a longer way to the first one, or a neighbour that slows both
in three of ten seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aisp_mcp.runs.endpoint import loads, measuring, reporting
from aisp_mcp.runs.endpoint.clients import CLIENTS
from aisp_mcp.runs.endpoint.servers import Server

TOKENS = 16
PLAIN = {"ttft_s": 0.06, "itl_s": 0.01, "tokens": TOKENS}
BUSY = {**PLAIN, "neighbour": 1.5}


@dataclass(frozen=True)
class Case:
    """Two stubs, the goal, and the right words: more than one where noise may hide the smaller difference."""

    name: str
    candidate: dict[str, Any]
    goal: str
    right: tuple[str, ...]
    baseline: dict[str, Any] = field(default_factory=lambda: PLAIN)


QUICK_BEHIND_A_QUEUE = {**PLAIN, "itl_s": 0.0025, "slots": 2}
NOT_DIFFERENT = ("same", "inconclusive")
CASES = [
    *(Case(f"identical, {goal}", PLAIN, goal, NOT_DIFFERENT) for goal in ("latency", "tpot", "ttft", "throughput")),
    *(Case(f"neighbour, identical, {goal}", BUSY, goal, NOT_DIFFERENT, BUSY) for goal in ("latency", "tpot", "ttft")),
    *(Case(f"cap on requests at once, {goal}", {**PLAIN, "slots": 2}, goal, ("worse",))
      for goal in ("latency", "tpot", "throughput")),
    *(Case(f"slower decode, {goal}", {**PLAIN, "itl_s": 0.013}, goal, ("worse",)) for goal in ("latency", "tpot")),
    *(Case(f"longer to the first token, {goal}", {**PLAIN, "ttft_s": 0.12}, goal, ("worse",))
      for goal in ("latency", "ttft")),
    *(Case(f"quick tokens behind a queue, {goal}", QUICK_BEHIND_A_QUEUE, goal, ("trade-off",))
      for goal in ("latency", "ttft", "tpot", "throughput")),
    Case("quicker decode", {**PLAIN, "itl_s": 0.007}, "tpot", ("better",)),
    Case("neighbour, much slower decode", {**BUSY, "itl_s": 0.03}, "tpot", ("worse",), BUSY),
]  # fmt: skip


def compare(case: Case, client: str, folder: Path, repeats: int) -> dict[str, Any]:
    """The verdict on one case."""
    begin = time.monotonic()
    guidellm = next(each for each in CLIENTS if each.name == "guidellm")
    under = tuple(loads.parse(["2", "8", "70%"]))
    plan = measuring.Plan(guidellm, client, under, 24, TOKENS, 10, repeats, (None, None), folder, 120.0)
    with measuring.stub(**case.baseline) as one, measuring.stub(**case.candidate) as other:
        pair = [Server(one, "aisp-stub"), Server(other, "aisp-stub")]
        measured = measuring.measure(plan, pair)
        judged = measuring.compare(plan, measured, reporting.all_figures(plan, pair, measured), case.goal, 0.05)
    return {"case": case.name, "right": list(case.right), "found": judged.verdict, "sentence": judged.sentence,
            "ok": judged.verdict in case.right, "seconds": round(time.monotonic() - begin, 1)}  # fmt: skip


def main() -> int:
    """Print all rows as JSON; a row on standard error as soon as it is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client")
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    rows = []
    for at, case in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(case, options.client, Path(folder) / str(at), options.repeats))
        print(rows[-1], file=sys.stderr, flush=True)
    json.dump({"right": sum(row["ok"] for row in rows), "of": len(rows), "rows": rows}, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
