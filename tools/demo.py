"""The demonstration: start the real server, act as an MCP client, measure three benchmarks, show the verdicts.

Everything below the line `async with Client(...)` is what an AI assistant does when it uses this server.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.markup import escape
from rich.table import Table

TARGETS = ["ch01:bias_gelu", "ch07:row_sum", "ch15:attention"]
STYLES = {"faster": "bold green", "same": "cyan", "inconclusive": "yellow", "slower": "red"}

# Without a terminal it prints a log, whose lines are not cut to a width.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


async def main() -> int:
    server = StdioServerParameters(command=sys.executable, args=["-m", "aisp_mcp", "--serve"], env=dict(os.environ))
    async with Client(server, read_timeout_seconds=120) as client:
        tools = (await client.list_tools()).tools
        out.print(f"Connected to [bold]aisp[/] over MCP {client.protocol_version}: {len(tools)} tools.")

        triage = await call(client, "aisp_triage")
        out.print(f"   {escape(triage['result']['summary'])}")

        answer = await call(client, "aisp_run_benchmarks", targets=TARGETS, wait_s=0)
        while answer["status"] in ("queued", "running"):
            answer = await wait(client, answer["job"]["job_id"])
        return show(answer["result"])


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """One tool call, its progress shown; ends the demonstration when the answer is an error."""
    arguments_text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    out.print(f"[dim]→[/] {tool}({escape(arguments_text)})")
    result = await client.call_tool(tool, arguments, progress_callback=show_progress)
    envelope: dict[str, Any] = result.structured_content or {}
    if "error" in envelope:
        fail(envelope["error"])
    return envelope


async def wait(client: Client, job_id: str) -> dict[str, Any]:
    """One round of waiting, paced by the server; the job's own answer as soon as there is one."""
    waited = (await call(client, "aisp_job_wait", job_ids=[job_id], timeout_s=45))["result"]
    answer: dict[str, Any] | None = waited.get("answer")
    if answer is None:
        state = waited["jobs"][0]["state"]
        return {"status": state, "job": {"job_id": job_id}}
    if "error" in answer:
        fail(answer["error"])
    return answer


async def show_progress(progress: float, total: float | None, message: str | None) -> None:
    """A notification of the server while a call waits."""
    share = f"{progress / total:4.0%}" if total else f"{progress:g}"
    out.print(f"   [dim]{share} {escape(message or '')}[/]")


def show(result: dict[str, Any]) -> int:
    """The verdict table."""
    table = Table(title="Verdicts", title_justify="left")
    for heading in ("target", "verdict", "ratio [95 % interval]", "noise floor", "outputs checked", "isolation"):
        table.add_column(heading)
    for verdict_row in result["rulings"]:
        table.add_row(*row(verdict_row))
    out.print(table)
    for missed in [*result["skipped"], *result["failed"]]:
        out.print(
            f"not measured: {missed['target']}: {missed['code']} {missed.get('missing') or missed.get('message')}"
        )
    out.print(
        f"Run {result['run_id']}, {result['seconds']:.0f} s. Next: aisp bench export {result['run_id']} --format html"
    )
    return 0 if result["rulings"] else 1


def row(comparison: dict[str, Any]) -> list[str]:
    """One comparison; above 1 the candidate is better."""
    ratio = f"{comparison['ratio']:.3f}x" if comparison.get("ratio") else "–"
    if comparison["interval"]:
        low, high = comparison["interval"]
        ratio += f" [{low:.3f}, {high:.3f}]"
    floor = comparison.get("noise_floor")
    noise = "–" if floor is None else f"±{floor:.1%}"
    style = STYLES.get(comparison["verdict"], "bold red")
    checked = "{} of {} timed calls verified".format(*comparison["verified"]) if comparison["verified"] else "–"
    return [
        comparison["target"],
        f"[{style}]{comparison['verdict']}[/]",
        ratio,
        noise,
        checked,
        comparison["isolation"],
    ]


def fail(error: dict[str, Any]) -> None:
    """Print the server's output, and exit."""
    out.print(f"[bold red]{error['code']}[/]: {escape(error['message'])} {escape(error.get('hint') or '')}")
    raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
