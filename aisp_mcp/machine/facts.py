"""Everything about the machine in one record, for an agent's context or a colleague."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import NextStep
from aisp_mcp.errors import Refused
from aisp_mcp.machine import dependencies, lines, snapshot
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.findings import ranking
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.process import isolation
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.private import make_private
from aisp_mcp.system import manifest, redact, topology
from aisp_mcp.system.gpu import smi
from aisp_mcp.system.records.device import Finding, GpuReading

_SHOWN_PACKAGES = ("torch", "triton", "numpy", "vllm", "flash-attn", "transformer-engine")
_CEILINGS = ("gemm_bf16", "gemm_fp8", "gemm_fp32", "bandwidth_copy", "bandwidth_read", "bandwidth_write")


def look(ctx: Context) -> Snapshot:
    """The machine now, with the file systems that this program uses."""
    return snapshot.take(lines.watched(ctx.settings.home, *ctx.settings.bench_roots))


def all_findings(machine: Snapshot) -> list[Finding]:
    """Findings about the machine and the isolation of workers, most severe first."""
    return ranking.ranked([*ranking.all_findings(machine), *_isolation(isolation.probe())])


def _isolation(reached: isolation.Isolation) -> Iterator[Finding]:
    if reached.level in ("L0", "L1"):
        yield Finding(
            severity="warning",
            code="ISOLATION_LOW",
            message=f"Workers get {reached.level} isolation at most: a candidate sees other processes and files.",
            evidence={"missing": reached.missing},
            fix="Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), or run as root.",
            next=NextStep(tool="aisp_system_dependencies", why="what can be installed"),
        )


def summary(ctx: Context, machine: Snapshot) -> dict[str, Any]:
    """Some twenty lines: everything an agent must know before it proposes anything."""
    findings = all_findings(machine)
    packages = {name: machine.software.packages.get(name) for name in _SHOWN_PACKAGES}
    return {
        "host": lines.host(machine),
        "gpus": [lines.gpu(gpu) for gpu in machine.gpus.gpus],
        "software": {
            "python": machine.software.python,
            **{name: version for name, version in packages.items() if version},
            "driver": machine.gpus.driver,
            "cuda_driver": machine.gpus.cuda_driver,
            "toolkit": machine.software.toolkit,
        },
        "isolation": isolation.probe().level,
        "ceilings": ceilings(ctx, machine),
        "attention": [f"{f.severity}: {f.message}" for f in findings if f.severity != "note"],
    }


def ceilings(ctx: Context, machine: Snapshot) -> dict[str, str]:
    """The best stored rates of each device of this machine; empty before `aisp bench peak`."""
    best_rates = {}
    for key in [gpu.uuid for gpu in machine.gpus.gpus if gpu.uuid] or ["cpu"]:
        for kind in _CEILINGS:
            best = ctx.store.best_measurement(kind, key)
            if best is not None:
                best_rates[f"{key} {kind}"] = numbers.quantity(best.value, best.unit)
    return best_rates


def full(ctx: Context, machine: Snapshot) -> dict[str, Any]:
    """All records."""
    return {
        "findings": [finding.model_dump(exclude_none=True) for finding in all_findings(machine)],
        "gpus": machine.gpus.model_dump(),
        "topology": topology.read().model_dump(),
        "host": host(machine),
        "software": machine.software.model_dump(),
        "dependencies": [need.model_dump() for need in dependencies.check(machine)],
        "isolation": asdict(isolation.probe()),
        "capabilities": [capability(g.name, g.compute_capability) for g in machine.gpus.gpus],
        "ceilings": ceilings(ctx, machine),
    }


def host(machine: Snapshot) -> dict[str, Any]:
    """The facts of the host."""
    return {
        "cpu": machine.cpu.model_dump(),
        "numa": [node.model_dump() for node in machine.numa],
        "memory": machine.memory.model_dump(),
        "limits": machine.limits.model_dump(),
        "surroundings": machine.surroundings.model_dump(),
        "pressure": machine.pressure.model_dump(),
        "disks": [disk.model_dump() for disk in machine.disks],
        "network": machine.network.model_dump(),
    }


def capability(name: str | None, compute_capability: str | None) -> dict[str, Any]:
    """Facts of one GPU by exact name and limits by compute capability; unknown values are named."""
    facts = load.gpu(name)
    capability_name = compute_capability or (facts.compute_capability if facts else None)
    limits = load.capabilities().get(capability_name or "")
    unknown = []
    if facts is None:
        unknown.append(f"rates and sizes: '{name}' is not in the table of GPU facts")
    if limits is None:
        unknown.append(f"limits and features: compute capability {capability_name or 'unknown'} is not in the table")
    return {
        "name": name,
        "compute_capability": capability_name,
        "facts": facts.model_dump(exclude_none=True, exclude={"names"}) if facts else None,
        "limits": limits.model_dump() if limits else None,
        "unknown": unknown,
    }


def bundle(ctx: Context, folder: Path, hide_hostnames: bool) -> dict[str, Any]:
    """Write the triage bundle into a new folder; every file is redacted. Returns name to size.

    Raises Refused OUTSIDE_ROOTS, ALREADY_EXISTS.
    """
    target = folder.expanduser().absolute()
    hint = f"Add --allow-write {target.parent}, or name a folder under {ctx.settings.home}."
    files.require_inside(target, (ctx.settings.home, *ctx.allow_write), hint)
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise Refused("ALREADY_EXISTS", f"{target} exists and is not empty.", "Name a folder that does not exist.")
    make_private(ctx.settings.home)  # or creating a folder in it would create it with default permissions
    target.mkdir(parents=True, exist_ok=True)
    names = redact.own_hostnames() if hide_hostnames else ()
    sizes = {}
    for name, content in _documents(ctx).items():
        text = content if isinstance(content, str) else json.dumps(redact.redact_tree(content, names), indent=1)
        clean = redact.redact(text, names)
        (target / name).write_text(clean, encoding="utf-8")
        sizes[name] = len(clean.encode())
    return {"folder": str(target), "files": sizes}


def _documents(ctx: Context) -> dict[str, Any]:
    machine = look(ctx)
    matrix, problem = smi.topology()
    return {
        "README.md": report(machine, all_findings(machine)),
        "machine.json": full(ctx, machine),
        "manifest.json": manifest.manifest(),
        "packages.txt": packages(),
        "nvidia-smi.txt": smi.query() or "nvidia-smi gave no answer",
        "topology.txt": matrix or (problem.message if problem else ""),
    }


def packages() -> str:
    """name==version of every installed distribution."""
    from importlib import metadata

    return "\n".join(sorted({f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()})) + "\n"


def report(machine: Snapshot, findings: list[Finding]) -> str:
    """The capability report as Markdown: one screen."""
    rows = [f"# Machine\n\n{lines.summary(machine, findings)}\n", f"- {lines.host(machine)}"]
    rows += [f"- GPU {lines.gpu(gpu)}" for gpu in machine.gpus.gpus]
    rows.append("\n## Findings\n")
    for finding in findings:
        fix = f" Fix: `{finding.fix}`" if finding.fix else ""
        rows.append(f"- **{finding.severity}** {finding.code}: {finding.message}{fix}")
    for gpu in machine.gpus.gpus:
        known = capability(gpu.name, gpu.compute_capability)
        if known["facts"]:
            rows.append(f"\n## Datasheet of {gpu.name}, TFLOP/s\n")
            rows += ["| type | dense | sparse | accumulator |", "| --- | --- | --- | --- |"]
            for dtype, peak in known["facts"]["peak"].items():
                rows.append(f"| {dtype} | {peak['dense']:g} | {peak.get('sparse', '')} | {peak['acc']} |")
    return "\n".join(rows) + "\n"


def capability_notes(gpu_name: str | None, reading: GpuReading, capabilities: list[dict[str, Any]]) -> list[str]:
    """Facts missing from the answer, with reasons."""
    if gpu_name and capabilities[0]["facts"] is None:
        near = ", ".join(load.similar(gpu_name)) or "none"
        return [f"No facts for {gpu_name!r}: names must match exactly. Similar: {near}."]
    if not gpu_name and reading.problem is not None and not reading.gpus:
        return [f"No GPU here ({reading.problem.code}): name one with gpu to read its facts."]
    return []
