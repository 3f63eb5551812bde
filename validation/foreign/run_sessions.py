"""Submit a deck's candidates (see collect.py) to optimisations, as an agent would: over MCP, each file as it is.

python validation/foreign/run_sessions.py DECK --out TABLE.json [--problems GLOB --groups GLOB --seconds S]
One optimisation per problem. wall_s is what a submission takes as its client sees it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deck_table import write
from mcp import Client, StdioServerParameters
from run_deck import Row, blank, chosen

from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after this time")
    parser.add_argument("--problems", default="*", help="pattern of problem names")
    parser.add_argument("--groups", default=["*"], nargs="+")
    parser.add_argument("--candidates", default=["*"], nargs="+", help="patterns of their names")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between submissions, as an agent takes them")
    parser.add_argument("--reduced", action="store_true", help="the second of the sizes for a CPU")
    parser.add_argument("--set", default="{}", help="JSON of constants for all problems")
    parser.set_defaults(batch=10**9, shape="smallest")
    return parser.parse_args()


async def main() -> None:
    """Submit, and print a line per answer."""
    args, begin = arguments(), time.monotonic()
    home = args.deck.resolve() / ".sessions"
    shutil.rmtree(home, ignore_errors=True)
    os.environ["AISP_HOME"] = str(home)
    words = ["-m", "aisp_mcp", "--allow-write", str(args.deck.resolve())]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    rows: list[Row] = []
    async with Client(server, read_timeout_seconds=1800) as client:
        for problem in chosen(args):
            if time.monotonic() - begin > args.seconds:
                print("out of time", flush=True)
                break
            async for row in submitted(client, args, problem, home / problem["problem"]):
                rows.append(row)
                write(args.out, rows)


async def submitted(
    client: Client, args: argparse.Namespace, problem: dict[str, Any], folder: Path
) -> AsyncIterator[Row]:
    """A row per submission."""
    small = (problem["reduced"][1:] or [{}])[0] if args.reduced else {}
    root = args.deck.resolve() / problem["path"]
    more = {"format": problem["format"], "to": str(folder / "pairs"), "set": {**problem["shape"], **small}}
    adapted = await asked(client, "aisp_benchmark_adapt", path=str(root), **more)
    if "problems" not in adapted or not adapted["problems"]:
        for row in blank(problem):
            yield {**row, "refusal": adapted}
        return
    more = {"bench_root": [str(folder / "pairs")], "workspace": str(folder / "room"), "preset": "quick"}
    begun = await asked(
        client, "aisp_optimize_start", target=adapted["problems"][0]["target"], candidates=100, patience=100, **more
    )
    if "session" not in begun:
        for row in blank(problem):
            yield {**row, "refusal": begun}
        return
    at = root if root.is_dir() else root.parent
    for row, file in zip(blank(problem), problem["candidates"], strict=True):
        await asyncio.sleep(args.pause)
        text, begin = (at / file).read_text("utf-8"), time.monotonic()
        answer = await asked(client, "aisp_optimize_submit", session=begun["session"], candidate=text, wait_s=45)
        row |= {"wall_s": round(time.monotonic() - begin, 2), **found(answer)}
        outcome = row.get("verdict") or row["refusal"]["code"]
        print(row["id"], row["auditor"], "->", outcome, row.get("ratio"), row["wall_s"], flush=True)
        yield row


def found(answer: dict[str, Any]) -> Row:
    """Verdict and phases of an answer, or why there is none."""
    if "row" not in answer:
        return {"refusal": answer}
    row = answer["row"]
    if row.get("verdict") is None:
        return {"refusal": {"code": row["state"], "message": row["sentence"]}}
    run = Context(settings=Settings.from_env()).store.run(Run, row["run_id"])
    facts = {key: row.get(key) for key in ("verdict", "ratio", "interval", "sentence")}
    phases = run.comparisons[0].phases if run.comparisons else {}
    return facts | {"phases": phases, "seconds": round(sum(phases.values()), 2)}


async def asked(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    """A tool's result, or its error; that of a call which became a job once the job has ended."""
    answer = (await client.call_tool(tool, args)).structured_content or {}
    if job := answer.get("job"):
        answer = {}
        while not answer:
            waited = (await client.call_tool("aisp_job_wait", {"job_ids": [job["job_id"]]})).structured_content or {}
            answer = (waited.get("result") or {"answer": waited}).get("answer") or {}
    return dict(answer.get("result") or answer.get("error") or {"code": "NO_ANSWER", "message": str(answer)[:300]})


if __name__ == "__main__":
    asyncio.run(main())
