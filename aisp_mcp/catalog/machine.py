"""What this machine is and what is wrong with it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.context import Context
from aisp_mcp.model.base import Params, Record
from aisp_mcp.model.device import Finding, Software
from aisp_mcp.registry import MS, READS, S, tool


class NoParams(Params):
    """No arguments."""


class Triage(Record):
    """Findings ranked by severity; a healthy machine has none above note."""

    summary: str
    gpus: list[str] = Field(description="One line per GPU.")
    host: str
    isolation: dict[str, Any] | None = Field(default=None, description="Isolation level available to benchmarks.")
    findings: list[Finding]


@tool(
    cli="triage",
    effect=READS,
    cost=S,
    next=("aisp_gpu_info", "aisp_system_dependencies", "aisp_system_software"),
)
def aisp_triage(p: NoParams, ctx: Context) -> Triage:
    """START HERE: health of GPU, driver, torch, profilers, disk and limits; ranked findings, each with a next call."""
    from aisp_mcp.system import findings, lines, snapshot

    seen = snapshot.take(lines.watched(ctx.settings.home, ctx.settings.bench_root))
    found = findings.all_findings(seen)
    return Triage(
        summary=lines.summary(seen, found),
        gpus=[lines.gpu(g) for g in seen.gpus.gpus],
        host=lines.host(seen),
        isolation=_isolation(),
        findings=found,
    )


def _isolation() -> dict[str, Any] | None:
    """What benchmark workers can be isolated with here; None while the room for it is not part of this build."""
    try:
        from aisp_mcp.process import isolation
    except ImportError:
        return None
    level: Any = isolation.probe()
    return level.model_dump() if hasattr(level, "model_dump") else dict(vars(level))


class StatusLine(Record):
    """One line of health."""

    healthy: bool
    line: str
    gpus: int
    gpu_problem: str | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = Field(default=None, description="Under the artifact root.")


@tool(cli="status", effect=READS, cost=MS, next=("aisp_triage", "aisp_gpu_info"))
def aisp_status(p: NoParams, ctx: Context) -> StatusLine:
    """One fast health line: GPUs, load, memory, disk."""
    from aisp_mcp.system import lines

    return StatusLine(**lines.status(ctx.settings.home))


@tool(
    cli="info software",
    effect=READS,
    cost=MS,
    next=("aisp_system_dependencies",),
)
def aisp_system_software(p: NoParams, ctx: Context) -> Software:
    """Versions of Python, torch, CUDA, cuDNN, cuBLAS, NCCL, triton, profilers: from metadata, importing nothing."""
    from aisp_mcp.system import nvml, software

    return software.read(cuda_driver=nvml.versions()[1])


class Dependencies(Record):
    """What the tools need, and what does not fit together."""

    missing: list[dict[str, Any]] = Field(description="name, needed_by (tools), install (command).")
    present: dict[str, str] = Field(description="Name to version or path.")
    mismatches: list[Finding]


@tool(
    cli="info dependencies",
    effect=READS,
    cost=S,
    next=("aisp_triage", "aisp_system_software"),
)
def aisp_system_dependencies(p: NoParams, ctx: Context) -> Dependencies:
    """What is missing or mismatched, for which tools, with the install command."""
    from aisp_mcp.system import dependencies, findings, findings_software, snapshot

    seen = snapshot.take([])
    all_needs = dependencies.check(seen)
    return Dependencies(
        missing=[d.model_dump(exclude={"found"}) for d in all_needs if d.found is None],
        present={d.name: d.found for d in all_needs if d.found is not None},
        mismatches=findings.ranked(findings_software.mismatches(seen)),
    )
