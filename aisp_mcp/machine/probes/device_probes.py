"""Probes of a device: matrix products, memory, attention, links, caches, roofline, launch cost, the scorecard."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.machine.probes import cache_host, probe_runner
from aisp_mcp.machine.probes.children.gemm import CPU_DTYPES, GPU_DTYPES
from aisp_mcp.machine.probes.probe_runner import Device, rate
from aisp_mcp.machine.probes.records import Against, Hierarchy, Level, Placed, Probe, Roofline, RooflinePoint
from aisp_mcp.process import browser
from aisp_mcp.server.charts import answers, drawing
from aisp_mcp.server.context import Context
from aisp_mcp.system import cpu, topology
from aisp_mcp.system.gpu import nvml

MIB = 2**20
_TINY = "Consecutive copies of 4 bytes through torch, including the time the host needs to issue them."


def gemm(ctx: Context, device: Device, dtypes: list[str] | None, size: int | None, timeout_s: float) -> Probe:
    """Dense rate per dtype; default dtypes and sizes per device, with smaller products where a CPU is slow."""
    chosen = dtypes or list(GPU_DTYPES if device.is_gpu else CPU_DTYPES)
    edge = size or (8192 if device.is_gpu else 2048)
    specs = probe_runner.peak_specs(device)
    params = {"dtypes": chosen, "size": edge, "shrink": size is None and not device.is_gpu}
    return probe_runner.probe(ctx, device, "gemm", params, timeout_s, specs)


def bandwidth(ctx: Context, device: Device, kinds: list[str], size_mb: int | None, timeout_s: float) -> Probe:
    """Memory bandwidth; with arrays of 1 GiB on a GPU; on a CPU, four times the last-level cache and at
    least 64 MiB.
    """
    size = (size_mb * MIB) if size_mb else (1024 * MIB if device.is_gpu else _beyond_cache())
    specs = probe_runner.bandwidth_specs(device, kinds)
    return probe_runner.probe(ctx, device, "bandwidth", {"kinds": kinds, "size_bytes": size}, timeout_s, specs)


def _beyond_cache() -> int:
    last = max((c.size_bytes or 0 for c in cpu.read().caches), default=0)
    return min(max(4 * last, 64 * MIB), 512 * MIB)


def attention(ctx: Context, device: Device, timeout_s: float) -> Probe:
    """Scaled dot-product attention at one usual shape per device."""
    big = {"batch": 4, "heads": 32, "sequence": 4096, "head_dim": 128, "dtype": "bf16"}
    small = {"batch": 1, "heads": 8, "sequence": 512, "head_dim": 64, "dtype": "fp32"}
    spec = probe_runner.peak_specs(device).get("bf16")
    specs = {"sdpa_full": spec, "sdpa_causal": spec} if spec else {}
    return probe_runner.probe(ctx, device, "attention", big if device.is_gpu else small, timeout_s, specs)


def pcie(ctx: Context, device: Device, size_mb: int, timeout_s: float) -> Probe:
    """Host link against the theory of the trained link."""
    probe = probe_runner.probe(ctx, device, "pcie", {"size_bytes": size_mb * MIB}, timeout_s, {})
    one_way = probe_runner.pcie_link(device)
    if one_way is None:
        return probe
    results = []
    for item in probe.results:
        limit = one_way * (2 if item.name.startswith("bidirectional") else 1)
        link = probe_runner.against(limit, item.rate.median, "trained PCIe link after line coding")
        results.append(item.model_copy(update={"link": link}))
    return probe.model_copy(update={"results": results})


def p2p(size_mb: int, pairs: int, timeout_s: float) -> Probe:
    """Bandwidth and latency between GPUs of this host, relative to the NVLink rate that the driver reports."""
    began = time.monotonic()
    params = {"size_bytes": size_mb * MIB, "pairs": pairs, "rounds": probe_runner.ROUNDS, "budget_s": 0.6 * timeout_s}
    reply = probe_runner.ask("p2p", params, timeout_s)
    links = {gpu.index: gpu.nvlink_per_direction_bytes_s for gpu in topology.read().gpus}
    results = []
    for pair in reply["pairs"]:
        for name, samples in pair["samples"].items():
            measured, limit = rate(samples), links.get(pair["a"])
            both = 2 if "<->" in name else 1
            link = probe_runner.against(limit * both, measured.median, "NVLink, all active links") if limit else None
            results.append(Placed(name=name, unit="B/s", rate=measured, link=link))
        tiny = Placed(name=f"{pair['a']}->{pair['b']} latency", unit="s", rate=rate(pair["latency_s"]), note=_TINY)
        results.append(tiny)
    without = [f"{p['a']}-{p['b']}" for p in reply["pairs"] if not p["peer_access"]]
    notes = [f"No peer access between {', '.join(without)}: copies pass through the host."] if without else []
    uuids = ",".join(nvml.gpu_uuids())
    return Probe(
        device=f"{reply['gpus']} GPUs",
        device_id=uuids,
        results=results,
        notes=notes,
        conditions={"size_bytes": size_mb * MIB},
        seconds=round(time.monotonic() - began, 3),
    )


def hierarchy(ctx: Context, device: Device, max_mb: int | None, timeout_s: float) -> Hierarchy:
    """Latency and bandwidth over working sets, with the cache sizes that the kernel or driver reports."""
    began = time.monotonic()
    stated: dict[str, int] = {}
    notes: list[str] = []
    if device.is_gpu:
        limit = (max_mb or 512) * MIB
        params = {
            "device": device.torch,
            "max_bytes": limit,
            "stride_bytes": 128,
            "rounds": 7,
            "budget_s": timeout_s / 2,
        }
        reply = probe_runner.ask("cache_gpu", params, timeout_s)
        stated = reply["stated"]
    else:
        reply = _host_cache(ctx, (max_mb or _beyond_cache() // MIB) * MIB, timeout_s, notes)
        stated = {f"L{c.level} {c.kind}": c.size_bytes for c in cpu.read().caches if c.size_bytes}
    latency, band = _by_size(reply["latency_ns"]), _by_size(reply["bandwidth"])
    levels = [
        Level(bytes=s, latency_ns=rate(latency[s]), bandwidth=rate(band[s]) if band.get(s) else None)
        for s in sorted(latency)
    ]
    return Hierarchy(
        device=device.name,
        device_id=device.key,
        method=reply["method"],
        levels=levels,
        stated_caches=stated,
        notes=notes,
        seconds=round(time.monotonic() - began, 3),
    )


def _by_size(values: dict[Any, list[float]]) -> dict[int, list[float]]:
    """Restore numeric keys, which JSON turned into text."""
    return {int(size): samples for size, samples in values.items()}


def _host_cache(ctx: Context, limit: int, timeout_s: float, notes: list[str]) -> dict[str, Any]:
    program = cache_host.compiler()
    if program is None:
        notes.append(
            "No C compiler (cc, gcc, clang) was found: latencies are differences to a 4 KiB set, timed through the"
            " interpreter, and bandwidth is left out. Install gcc for absolute values."
        )
        return cache_host.by_interpreter(min(limit, 64 * MIB), rounds=3)
    folder = ctx.run_dir or ctx.settings.home
    folder = Path(folder) / f"chase-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        return cache_host.by_compiler(program, folder, limit, rounds=6, timeout_s=0.8 * timeout_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def roofline(ctx: Context, device: Device, dtypes: list[str] | None, png: bool, timeout_s: float) -> Roofline:
    """Measure ceilings, then operations of known intensity, then draw the picture. Raises Unavailable NOT_INSTALLED
    first.
    """
    began = time.monotonic()
    painter = find_renderer() if png else None
    chosen = dtypes or (["bf16", "tf32", "fp32"] if device.is_gpu else ["fp32", "bf16"])
    peaks = gemm(ctx, device, chosen, None, timeout_s / 3)
    moved = bandwidth(ctx, device, ["copy", "read", "triad"], None, timeout_s / 3)
    dtype = next((d for d in chosen if d in ("bf16", "fp16", "fp32")), "fp32")
    params = {
        "device": device.torch,
        "size": 16384 if device.is_gpu else 4096,  # the product does not fit into the last cache
        "dtype": dtype,
        "rounds": 6,
        "budget_s": timeout_s / 6,
    }
    reply = probe_runner.ask("roofline", params, timeout_s / 3)
    band = max(moved.results, key=lambda item: item.rate.median)
    top = next((c.rate.median for c in peaks.results if c.name == dtype), math.inf)
    result = Roofline(
        device=device.name,
        device_id=device.key,
        ceilings=peaks.results,
        bandwidth=band,
        ridge={c.name: round(c.rate.median / band.rate.median, 2) for c in peaks.results},
        points=[_point(p, top, band.rate.median) for p in reply["points"]],
        points_dtype=dtype,
        notes=[*dict.fromkeys([*peaks.notes, *moved.notes])],
        seconds=round(time.monotonic() - began, 3),
    )
    return _drawn(result, ctx.run_dir or ctx.settings.home, painter)


def _point(raw: dict[str, Any], peak: float, band: float) -> RooflinePoint:
    intensity = raw["flops"] / raw["bytes"]
    roof = min(peak, intensity * band)
    measured = rate(raw["samples"])
    return RooflinePoint(
        name=raw["name"],
        intensity=round(intensity, 4),
        rate=measured,
        share_of_roof=round(measured.median / roof, 4),
        bound="memory" if intensity * band < peak else "compute",
    )


def _drawn(result: Roofline, folder: Path, painter: str | None) -> Roofline:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "roofline.svg"
    (drawn,) = answers.draw("roofline", result.model_dump())
    path.write_text(drawing.to_file(drawn), encoding="utf-8")
    size = drawing.file_size(drawn)
    picture = str(draw_png(painter, path, path.with_suffix(".png"), size)) if painter else None
    return result.model_copy(update={"chart": str(path), "png": picture})


def launch(ctx: Context, device: Device, timeout_s: float) -> Probe:
    """Launch, dispatch and synchronisation costs in seconds."""
    none: dict[str, Against] = {}
    return probe_runner.probe(ctx, device, "launch", {}, timeout_s, none)


def scorecard(ctx: Context, device: Device, types: list[str], timeout_s: float, peak: bool) -> list[tuple[str, Probe]]:
    """(kind, probe) per type. kind names the stored ceilings; peak: all dtypes and kinds."""
    share = timeout_s / len(types)
    quick = None if peak else (["bf16", "fp8", "fp32"] if device.is_gpu else ["fp32", "bf16"])
    kinds = ["copy", "read", "write", "triad"] if peak else ["copy", "triad"]
    parts = []
    for name in types:
        if name == "gemm":
            parts.append(("gemm", gemm(ctx, device, quick, None, share)))
        elif name == "memory":
            parts.append(("bandwidth", bandwidth(ctx, device, kinds, None, share)))
        elif name == "attention":
            parts.append(("attention", attention(ctx, device, share)))
        else:
            parts.append(("launch", launch(ctx, device, share)))
    return parts


def named(parts: list[tuple[str, Probe]]) -> list[Placed]:
    """All results under descriptive names."""
    return [item.model_copy(update={"name": f"{kind} {item.name}"}) for kind, part in parts for item in part.results]


def find_renderer() -> str:
    """rsvg-convert or a Chromium on PATH. Raises Unavailable NOT_INSTALLED."""
    if program := browser.find("rsvg-convert"):
        return program
    raise Unavailable(
        "NOT_INSTALLED",
        f"A PNG needs a program that draws SVG; looked for rsvg-convert, {', '.join(browser.BROWSERS)} on PATH.",
        "sudo apt-get install librsvg2-bin, or leave png out: the SVG needs nothing.",
        (("aisp_hw_roofline", {}),),
    )


def draw_png(program: str, svg: Path, png: Path, size: tuple[int, int], timeout_s: float = 60) -> Path:
    """Write the PNG with two dots per pixel of the SVG's size. Raises ProcessError."""
    from aisp_mcp.process.run import run

    if Path(program).name == "rsvg-convert":
        argv = [program, "--zoom", "2", "--output", str(png), str(svg)]
    else:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        flags += ["--force-device-scale-factor=2", f"--window-size={size[0]},{size[1]}"]
        argv = [program, *flags, f"--screenshot={png}", svg.absolute().as_uri()]
    run(argv, timeout_s=timeout_s, check=True)
    return png
