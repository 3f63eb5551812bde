"""Whole programs as benchmarks."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.gate.commands.records import CommandComparison
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, tool

if TYPE_CHECKING:
    from aisp_mcp.gate.commands.judge import CommandRequest


class LimitParams(JobParams):
    """Limits of both programs."""

    cores: int = Field(default=1, ge=1, le=1024, description="CPU cores.")
    memory_mb: float | None = Field(default=None, gt=0, description="Address space.")
    run_timeout_s: float = Field(default=60, gt=0, le=3600)


class ScanParams(LimitParams):
    """Values of a parameter, and files to write."""

    parameter_scan: list[str] = Field(
        default_factory=list, max_length=4, description="NAME MIN MAX [STEP]: for {NAME}."
    )
    export_json: str | None = Field(default=None, max_length=4096, description="File, in hyperfine's format.")
    export_markdown: str | None = Field(default=None, max_length=4096)


class CommandsParams(ScanParams):
    baseline: str = Field(max_length=4000, description="{input}: folder of input files. No shell.")
    candidate: str = Field(max_length=4000)
    make: str | None = Field(default=None, description="Program: make SEED FOLDER.")
    check: str | None = Field(default=None, description="check INPUT EXPECTED FOUND: exit code 0 is right.")
    file: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="Further files.",
    )
    preset: Literal["quick", "default", "release"] = Field(default="default", description="3, 7 or 15 replicates.")
    runs: int | None = Field(default=None, ge=4, le=200, description="Timed runs.")
    warmup: int = Field(default=0, ge=0, le=50)
    margin: float | None = Field(default=None, ge=0, le=1)


@tool(
    cli="bench commands",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=3600, measures=True),
    next=("aisp_verify_candidate",),
    verdict=True,
)
def aisp_benchmark_commands(p: CommandsParams, ctx: Context) -> CommandComparison:
    """Judge two command lines as whole programs: fresh inputs, interleaved runs, outputs and resources checked."""
    from aisp_mcp.gate.commands import export, scan

    parameter = scan.parameter(p.parameter_scan)
    comparison = scan.compare(_request(p), parameter, ctx.progress)
    exports = {export.to_json: p.export_json, export.to_markdown: p.export_markdown}
    files = [export.write(form(comparison), path, ctx.allow_write) for form, path in exports.items() if path]
    return comparison.model_copy(update={"files": files})


def _request(p: CommandsParams) -> CommandRequest:
    """The arguments of judge.compare()."""
    from aisp_mcp.gate.commands import judge

    return judge.CommandRequest(
        baseline=_words(p.baseline),
        candidate=_words(p.candidate),
        make=Path(p.make).expanduser() if p.make else None,
        check=Path(p.check).expanduser() if p.check else None,
        files=[Path(path).expanduser() for path in p.file],
        cores=p.cores,
        memory_mb=p.memory_mb,
        timeout_s=p.run_timeout_s,
        replicates=judge.REPLICATES[p.preset] if p.runs is None else math.ceil(p.runs / 2),
        margin=p.margin,
        warmup=p.warmup,
    )


def _words(line: str) -> list[str]:
    """Program and arguments of a command line. Raises UsageError NO_PROGRAM."""
    try:
        words, why = shlex.split(line), "it is empty"
    except ValueError as error:  # such as an unclosed quotation mark
        words, why = [], str(error)
    if not words:
        raise UsageError("NO_PROGRAM", f"{line[:80]!r} is not a command line: {why}.", "Such as 'sort {input}/n.txt'.")
    return words
