"""Start a benchmark of your own."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import MS, WRITES, tool


class NewParams(Params):
    name: str = Field(min_length=1, max_length=60, pattern=r"^[a-z][a-z0-9_]*$", description="Such as nearest.")
    to: str | None = Field(default=None, max_length=4096, description="Folder. Default: new/NAME under AISP_HOME.")


class NewPair(Record):
    """The files of a new pair, and the command that judges it."""

    files: list[Written]
    target: str
    command: str


@tool(cli="bench new", effect=WRITES, cost=MS, next=("aisp_run_benchmarks", "aisp_verify_candidate"))
def aisp_benchmark_new(p: NewParams, ctx: Context) -> NewPair:
    """Write a working pair of files with comments, baseline and candidate, to fill in with code of your own."""
    from aisp_mcp.server import files
    from aisp_mcp.suites.functions import new

    folder = files.folder(p.to, ctx.settings.home / "new" / p.name, ctx.allow_write)
    written = new.write(folder, p.name)
    target = f"{folder.name}:{p.name}"
    root = "" if folder.parent.name == "benchmarks" else f" --bench-root {folder.parent}"
    return NewPair(files=written, target=target, command=f"aisp bench run --targets {target}{root}")
