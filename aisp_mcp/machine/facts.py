"""Everything about the machine in one record, and its one-line summaries, for an agent's context or a colleague."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import NextStep
from aisp_mcp.errors import Refused
from aisp_mcp.machine import dependencies, findings, snapshot
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.process import isolation
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.private import make_private
from aisp_mcp.system import disk, manifest, memory, redact, topology
from aisp_mcp.system.gpu import nvml, smi
from aisp_mcp.system.records import Finding, Gpu, GpuReading

_SHOWN_PACKAGES = ("torch", "triton", "numpy", "vllm", "flash-attn", "transformer-engine")
_CEILINGS = ("gemm_bf16", "gemm_fp8", "gemm_fp32", "bandwidth_copy", "bandwidth_read", "bandwidth_write")


def look(ctx: Context) -> Snapshot:
    """The machine now, with the file systems that this program uses."""
    return snapshot.take(watched(ctx.settings.home, *ctx.settings.bench_roots))


def all_findings(machine: Snapshot) -> list[Finding]:
    """Findings about the machine and the isolation of workers, most severe first."""
    return findings.ranked([*findings.all_findings(machine), *_isolation(isolation.probe())])


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
        "host": host_line(machine),
        "gpus": [gpu_line(gpu) for gpu in machine.gpus.gpus],
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
    rows = [f"# Machine\n\n{summary_line(machine, findings)}\n", f"- {host_line(machine)}"]
    rows += [f"- GPU {gpu_line(gpu)}" for gpu in machine.gpus.gpus]
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


GIB = 1024**3


def watched(*paths: Path) -> list[Path]:
    """The folders whose file systems matter: root, temporary folder, shared memory and the given ones."""
    return [Path("/"), Path(tempfile.gettempdir()), Path("/dev/shm"), *(p.absolute() for p in paths)]


def gpu_line(g: Gpu) -> str:
    """`0 NVIDIA H200, 139.8 GiB (0.6 used), 31 C, 81 of 700 W, 450 of 1980 MHz, P0`; absent values are left out."""
    if g.problem is not None and g.name is None:
        return f"{g.index} {g.problem.code}: {g.problem.message}"
    parts = [f"{g.index} {g.name or 'unnamed GPU'}"]
    total, used = g.memory.total_bytes, g.memory.used_bytes
    if total is not None:
        parts.append(f"{total / GIB:.1f} GiB" + (f" ({used / GIB:.1f} used)" if used is not None else ""))
    if g.activity.gpu_percent is not None:
        parts.append(f"{g.activity.gpu_percent} % busy")
    if g.thermal.gpu_c is not None:
        parts.append(f"{g.thermal.gpu_c} C")
    parts += _of(g.power.draw_w, g.power.limit_w, "W")
    parts += _of(g.clocks.sm_mhz, g.clocks.sm_max_mhz, "MHz")
    if g.activity.performance_state:
        parts.append(g.activity.performance_state)
    return ", ".join(parts)


def _of(now: float | None, limit: float | None, unit: str) -> list[str]:
    if now is None:
        return []
    return [f"{now:.0f} of {limit:.0f} {unit}" if limit else f"{now:.0f} {unit}"]


def host_line(s: Snapshot) -> str:
    """Processor, memory, and the container or virtual machine around them."""
    total = s.memory.total_bytes
    parts = [
        f"{s.cpu.model or s.cpu.architecture}, {s.cpu.usable or s.cpu.logical} CPUs",
        f"{total / GIB:.1f} GiB" if total is not None else "memory unknown",
        s.surroundings.distribution or "Linux",
        f"kernel {s.surroundings.kernel}",
    ]
    if s.surroundings.container != "none seen":
        parts.append(f"container: {s.surroundings.container}")
    if s.surroundings.hypervisor != "none seen":
        parts.append(f"hypervisor: {s.surroundings.hypervisor}")
    return ", ".join(parts)


def summary_line(s: Snapshot, findings: list[Finding]) -> str:
    """`No usable GPU; torch 2.13.0+cpu; findings: 0 critical, 1 warning, 4 notes.`"""
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("critical", "warning", "note")}
    cards = f"{len(s.gpus.gpus)} GPU(s), driver {s.gpus.driver}" if s.gpus.gpus else "No usable GPU"
    torch = s.software.packages.get("torch")
    words = ", ".join(
        f"{count} {kind}" if kind == "critical" or count == 1 else f"{count} {kind}s" for kind, count in counts.items()
    )
    return f"{cards}; torch {torch or 'not installed'}; findings: {words}."


def status(home: Path) -> dict[str, Any]:
    """The fields of the status line. Healthy: no driver problem, and some memory and disk left."""
    reading = nvml.read(deadline_s=0.5, brief=True)
    problem = reading.problem.code if reading.problem else None
    host_memory, load = memory.read(), memory.pressure().load_1m
    disks = disk.read([home.absolute()])
    free = disks[0].free_bytes if disks else None
    available = host_memory.available_bytes
    sick = problem not in (None, "NO_DRIVER", "NO_DEVICES") or any(g.problem for g in reading.gpus)
    low = (free is not None and free < GIB) or (available is not None and available < GIB // 2)
    cards = f"{len(reading.gpus)} GPU" if problem is None else (problem if sick else "no GPU")
    line = (
        f"{cards} | load {load if load is not None else 'unknown'} | memory {_gib(available)} free"
        f" | disk {_gib(free)} free"
    )
    return {
        "healthy": not sick and not low,
        "line": line,
        "gpus": len(reading.gpus),
        "gpu_problem": problem,
        "load_1m": load,
        "memory_available_bytes": available,
        "disk_free_bytes": free,
    }


def _gib(count: int | None) -> str:
    return "unknown" if count is None else f"{count / GIB:.1f} GiB"
