"""Facts about this machine, and problems."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, WRITES, S, tool
from aisp_mcp.system.records import Finding, Software


class NoParams(Params):
    """No arguments."""


class Triage(Record):
    """Findings ranked by severity; a healthy machine has none above note."""

    summary: str
    gpus: list[str] = Field(description="One line per GPU.")
    host: str
    isolation: dict[str, Any] = Field(description="Isolation available to benchmarks: level, means, what is missing.")
    findings: list[Finding]


@tool(
    cli="triage",
    effect=READS,
    cost=S,
    next=("aisp_gpu_info", "aisp_system_dependencies", "aisp_benchmark_targets"),
    listed="lite",
)
def aisp_triage(p: NoParams, ctx: Context) -> Triage:
    """START HERE: check health of GPU, driver, torch, profilers, disk, limits; ranked findings with next calls."""
    from aisp_mcp.machine import facts

    state = facts.look(ctx)
    findings = facts.all_findings(state)
    return Triage(
        summary=facts.summary_line(state, findings),
        gpus=[facts.gpu_line(g) for g in state.gpus.gpus],
        host=facts.host_line(state),
        isolation=_isolation(),
        findings=findings,
    )


def _isolation() -> dict[str, Any]:
    """Isolation of benchmark workers on this machine, proved by trying it."""
    from dataclasses import asdict

    from aisp_mcp.process import isolation

    return asdict(isolation.probe())


class StatusLine(Record):
    """One line of health."""

    healthy: bool
    line: str
    gpus: int
    gpu_problem: str | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = Field(default=None, description="Under the artifact root.")


@tool(cli="status", effect=READS, cost=MS, next=("aisp_triage", "aisp_gpu_info"), listed="default")
def aisp_status(p: NoParams, ctx: Context) -> StatusLine:
    """Report one health line: GPUs, load, memory, disk."""
    from aisp_mcp.machine import facts

    return StatusLine(**facts.status(ctx.settings.home))


@tool(
    cli="info software",
    effect=READS,
    cost=MS,
    next=("aisp_system_dependencies",),
)
def aisp_system_software(p: NoParams, ctx: Context) -> Software:
    """List versions of Python, torch, CUDA, cuDNN, cuBLAS, NCCL, triton, profilers, without importing them."""
    from aisp_mcp.system import software
    from aisp_mcp.system.gpu import nvml

    return software.read(cuda_driver=nvml.versions()[1])


class Dependencies(Record):
    """Needs of the tools, and mismatches."""

    missing: list[dict[str, Any]] = Field(description="name, needed_by (tools), install (command).")
    present: dict[str, str] = Field(description="Name to version or path.")
    mismatches: list[Finding]


@tool(
    cli="info dependencies",
    effect=READS,
    cost=S,
    next=("aisp_triage", "aisp_system_software"),
    listed="default",
)
def aisp_system_dependencies(p: NoParams, ctx: Context) -> Dependencies:
    """List missing or mismatched dependencies, their tools and the install command."""
    from aisp_mcp.machine import dependencies, findings, snapshot

    state = snapshot.take([])
    all_needs = dependencies.check(state)
    return Dependencies(
        missing=[d.model_dump(exclude={"found"}) for d in all_needs if d.found is None],
        present={d.name: d.found for d in all_needs if d.found is not None},
        mismatches=findings.ranked(findings.mismatches(state)),
    )


class HostReport(Record):
    """The host in full, with its problems."""

    findings: list[Finding]
    host: dict[str, Any]


@tool(cli="info full", effect=READS, cost=S, next=("aisp_triage", "aisp_gpu_topology"))
def aisp_system_full(p: NoParams, ctx: Context) -> HostReport:
    """Describe CPU, NUMA, caches, memory, cgroup limits, kernel, container, disks, network; findings with commands."""
    from aisp_mcp.machine import facts, findings

    state = facts.look(ctx)
    return HostReport(findings=findings.ranked(findings.host_findings(state)), host=facts.host(state))


class CapabilityParams(Params):
    """Choice of the GPU."""

    gpu: str | None = Field(default=None, description="Such as H100-PCIe; H100 is the SXM card.")


class Capabilities(Record):
    """Per GPU: facts by exact name, limits by compute capability, and unknown values."""

    gpus: list[dict[str, Any]]
    cpu: dict[str, Any]
    notes: list[str]


@tool(
    cli="info capabilities",
    effect=READS,
    cost=S,
    next=("aisp_hw_tc", "aisp_gpu_info"),
    aliases={"aisp_info_features": {}},
)
def aisp_system_capabilities(p: CapabilityParams, ctx: Context) -> Capabilities:
    """List a GPU's precisions, tensor-core features, limits per SM and dense peaks, and what is not known."""
    from aisp_mcp.machine import facts
    from aisp_mcp.machine.datasheets import load
    from aisp_mcp.system import cpu
    from aisp_mcp.system.gpu import nvml

    reading = nvml.read()
    facts_row = load.named(p.gpu) if p.gpu else None
    named = (
        [(facts_row.sku if facts_row else p.gpu, None)]
        if p.gpu
        else [(g.name, g.compute_capability) for g in reading.gpus]
    )
    processor = cpu.read()
    capabilities = [facts.capability(name, capability) for name, capability in named]
    return Capabilities(
        gpus=capabilities,
        cpu={"model": processor.model, "isa": processor.isa, "logical": processor.logical},
        notes=facts.capability_notes(p.gpu, reading, capabilities),
    )


class ContextReport(Record):
    """The machine for an agent's context."""

    context: dict[str, Any]


@tool(
    cli="context summary",
    effect=READS,
    cost=S,
    next=("aisp_context_full", "aisp_triage"),
    aliases={"aisp_system_context": {}},
    listed="default",
)
def aisp_context_summary(p: NoParams, ctx: Context) -> ContextReport:
    """Describe the machine in twenty lines, for an agent that begins."""
    from aisp_mcp.machine import facts

    return ContextReport(context=facts.summary(ctx, facts.look(ctx)))


@tool(cli="context full", effect=READS, cost=S, next=("aisp_context_summary",))
def aisp_context_full(p: NoParams, ctx: Context) -> ContextReport:
    """Report everything known: findings, GPUs, topology, host, software, limits, stored ceilings."""
    from aisp_mcp.machine import facts

    return ContextReport(context=facts.full(ctx, facts.look(ctx)))


class AiStatus(Record):
    """Availability of an LLM. The key is never shown."""

    configured: bool
    url: str | None = None
    model: str | None = None
    key_set: bool = False
    reachable: bool | None = Field(default=None, description="None when nothing is configured.")
    models: list[str] = Field(default_factory=list, description="As the server lists them, at most 20.")
    problem: str | None = None


@tool(cli="info ai", effect=READS, cost=S, needs=("network",), next=("aisp_triage",))
def aisp_ai_status(p: NoParams, ctx: Context) -> AiStatus:
    """Check if an LLM backend is configured and reachable, and its model; keys are never printed."""
    from aisp_mcp.settings import LlmSettings
    from aisp_mcp.system import llm

    s = LlmSettings.from_env()
    if not s.url:
        return AiStatus(
            configured=False, problem="AISP_LLM_URL is not set: answers come from the knowledge base alone."
        )
    models, problem = llm.models(s)
    return AiStatus(
        configured=True,
        url=llm.shown(s.url),
        model=s.model or None,
        key_set=bool(s.key),
        reachable=problem is None,
        models=models[:20],
        problem=problem,
    )


class BundleParams(Params):
    """Target of the file."""

    to: str = Field(description="New folder.")
    hide_hostnames: bool = False


class Bundle(Record):
    """Files written, with their bytes."""

    folder: str
    files: dict[str, int]


@tool(cli="info bundle", effect=WRITES, cost=S, next=("aisp_triage",))
def aisp_info_bundle(p: BundleParams, ctx: Context) -> Bundle:
    """Write a folder an engineer can send to a colleague: findings, machine, versions, topology; secrets redacted."""
    from pathlib import Path

    from aisp_mcp.machine import facts

    return Bundle(**facts.bundle(ctx, Path(p.to), p.hide_hostnames))
