"""Record real profiles on one NVIDIA GPU and compare every total with NVIDIA's own tools. Not a test: run it on a card.

    python tests/gpu/run_profilers.py [--out FOLDER] [--only nsys,ncu,torch,memory,nccl]

Prints one JSON document: per profile what was found, and the differences (all should be 0). With --out, the scrubbed
artifacts are kept there, compressed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "profilers")]

from aisp_mcp.model.profile import Profile  # noqa: E402
from aisp_mcp.profilers import digest, find, load, ncu, record, scrub, timeline  # noqa: E402
from aisp_mcp.profilers.insights.engine import insights  # noqa: E402

TRAIN = """
import sys, torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda", dtype=torch.bfloat16)
net = torch.nn.TransformerEncoder(layer, 4)
opt = torch.optim.AdamW(net.parameters(), fused=True)
side = torch.cuda.Stream()
batches = [torch.randn(8, 512, 1024, dtype=torch.bfloat16).pin_memory() for _ in range(2)]
graph_in = torch.randn(512, 512, device="cuda")
for _ in range(3):
    graph_out = graph_in @ graph_in
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    graph_out = (graph_in @ graph_in).relu() + graph_in
for number in range(int(sys.argv[1])):
    with torch.profiler.record_function("step"):
        torch.cuda.nvtx.range_push("step")
        with torch.cuda.stream(side):
            graph_in.mul_(1.0)
        batch = batches[number % 2].to("cuda", non_blocking=True)
        torch.cuda.nvtx.range_push("forward")
        loss = net(batch).float().square().mean()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("backward")
        loss.backward()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("optimizer")
        opt.step()
        opt.zero_grad()
        torch.cuda.nvtx.range_pop()
        side.synchronize()
        graph.replay()
        if number % 3 == 2:
            loss.item()
        torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
"""

KERNEL = """
import torch, triton, triton.language as tl
@triton.jit
def scale_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2.0 + tl.load(y + at, at < n), at < n)
n = 1 << 24
x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
out = torch.empty_like(x)
for _ in range(3):
    scale_add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
b = a @ a
torch.cuda.synchronize()
"""

NCCL = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
data = torch.randn(32 << 20, device="cuda", dtype=torch.bfloat16)
side = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
with torch.profiler.profile() as prof:
    for _ in range(5):
        work = dist.all_reduce(data, async_op=True)
        side @ side
        work.wait()
    torch.cuda.synchronize()
prof.export_chrome_trace(os.path.join(os.environ["OUT"], f"rank{rank}.json"))
dist.destroy_process_group()
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="nsys,ncu,torch,memory,nccl")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="aisp-profilers-"))
    (work / "train.py").write_text(TRAIN)
    (work / "kernel.py").write_text(KERNEL)
    (work / "nccl.py").write_text(NCCL)
    jobs: dict[str, Callable[[Path], dict[str, Any]]] = {
        "nsys": nsys_run, "ncu": ncu_run, "torch": torch_run, "memory": memory_run, "nccl": nccl_run,
    }  # fmt: skip
    report = {name: _guarded(jobs[name], _folder(work, name)) for name in options.only.split(",")}
    if options.out:
        _keep(work, options.out)
    shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(report, indent=1))
    return 0


def _folder(work: Path, name: str) -> Path:
    folder = work / name
    folder.mkdir()
    return folder


def _guarded(job: Callable[[Path], dict[str, Any]], folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = job(folder)
    except Exception as error:
        traceback.print_exc()
        hint = getattr(error, "hint", None)
        found = {"error": f"{type(error).__name__}: {error}", "hint": hint}
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def _found(profile: Profile) -> list[str]:
    return [f"{i.rule} {i.gain_ceiling}" for i in insights(profile).found]


def nsys_run(folder: Path) -> dict[str, Any]:
    """Record, export, scrub, read; then `nsys stats` on the same export."""
    program = find.program("nsys", folder)
    path = record.nsys(program, [sys.executable, str(folder.parent / "train.py"), "8"], folder, "light", None, 300)
    began = time.monotonic()
    trace = load.load_trace(path)
    profile, steady = timeline.profile(trace), timeline.profile(trace, "steady")
    seconds = time.monotonic() - began
    table = profile.timeline
    assert table is not None
    differences = {
        "kernels": _against(program, path, "cuda_gpu_kern_sum", "Name", "Instances", table.kernels),
        "api": _against(program, path, "cuda_api_sum", "Name", "Num Calls", table.api),
        "ranges": _ranges(program, path, table.ranges),
    }
    return {
        "nsys": trace.source.version,
        "bytes": path.stat().st_size,
        "read_seconds": round(seconds, 3),
        "kernels": len(trace.gpu),
        "streams": len(table.streams),
        "secret_left": scrub.holds(path, scrub.secrets()),
        "differences": differences,
        "window": steady.window and steady.window.definition,
        "breakdown": [b.model_dump() for b in digest.breakdowns(steady)],
        "insights": _found(steady),
        "diagnostics": profile.diagnostics,
    }


def _stats(program: str, path: Path, report: str) -> list[dict[str, str]]:
    argv = [program, "stats", "--report", report, "--format", "csv", "--output", "-", "--force-export=false", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.count(",") > 3), None)
    if first is None:
        raise RuntimeError(f"nsys stats {report}: {(done.stdout + done.stderr)[-500:]}")
    return list(csv.DictReader(lines[first:]))


def _against(program: str, path: Path, report: str, name: str, count: str, table: Any) -> Any:
    """Names whose count, total, minimum, maximum or median differ; a text where nsys stats did not run."""
    try:
        rows = _stats(program, path, report)
    except RuntimeError as error:
        return str(error)
    theirs = {
        r[name]: tuple(float(r[c]) for c in (count, "Total Time (ns)", "Min (ns)", "Max (ns)", "Med (ns)"))
        for r in rows
    }
    mine = {
        r.name: (r.count, r.total_ns, r.min_ns, r.max_ns, round(r.median_ns, 1))
        for r in table
        if "[CUDA graph" not in r.name
    }
    different = [key for key in theirs.keys() | mine.keys() if theirs.get(key) != mine.get(key)]
    return {"compared": len(theirs), "different": different[:5]}


def _ranges(program: str, path: Path, table: Any) -> Any:
    try:
        rows = _stats(program, path, "nvtx_gpu_proj_sum")
    except RuntimeError as error:
        return str(error)
    mine = {r.name: r for r in table}
    different = [
        r["Range"]
        for r in rows
        if mine[r["Range"].lstrip(":")].projected_ns != int(r["Total Proj Time (ns)"])
        or mine[r["Range"].lstrip(":")].operations != int(r["Total GPU Ops"])
    ]
    return {"compared": len(rows), "different": different}


def ncu_run(folder: Path) -> dict[str, Any]:
    """Record a Triton kernel and a product; the page read by another way; the module, where it is installed."""
    program = find.program("ncu", folder)
    command = [sys.executable, str(folder.parent / "kernel.py")]
    raw, details = record.ncu(program, command, folder, "full", "scale_add|nvjet|gemm", 0, 4, 500)
    profile = ncu.read(raw, details)
    found: dict[str, Any] = {
        "kernels": [
            {
                "name": k.name[:60],
                "ns": k.duration_ns,
                "metrics": len(k.metrics),
                "bound": k.limiter and k.limiter.bound,
                "why": k.limiter and k.limiter.why,
                "rules": len(k.rules),
            }
            for k in profile.kernels
        ],
        "insights": _found(profile),
        "report_kept": (folder / "report.ncu-rep").exists(),
    }
    rep = folder / "report.ncu-rep"
    if rep.exists():
        try:
            exact = record.read_ncu(None, rep, folder)
        except Exception as error:
            return {**found, "module": str(error)}
        worst = [
            abs(a.metrics[n] - b.metrics[n]) / max(abs(b.metrics[n]), 1.0)
            for a, b in zip(profile.kernels, exact.kernels, strict=True)
            for n in a.metrics.keys() & b.metrics.keys()
        ]
        found["module"] = {"compared": len(worst), "largest_relative_difference": max(worst, default=None)}
    return found


def torch_run(folder: Path) -> dict[str, Any]:
    """A trace of the training step; the breakdown against a sweep over all edges."""
    from test_timeline import _brute

    path, facts = record.torch(str(folder.parent / "train.py"), ["6"], folder, "full", sys.executable, 300)
    trace = load.load_trace(path)
    table = timeline.profile(trace).timeline
    assert table is not None
    row = table.breakdown[0]
    wanted = _brute(trace)
    return {
        "torch": facts["torch"],
        "events": len(trace.gpu) + len(trace.api) + len(trace.operators),
        "bytes": path.stat().st_size,
        "differences_ns": {
            "compute": row.compute_ns - wanted["compute"],
            "memory": row.memory_ns - wanted["memory"],
            "idle": row.idle_ns - wanted["idle"],
        },
        "operators": record.operators(folder, 3),
        "insights": _found(timeline.profile(trace, "steady")),
        "compile": facts.get("compile"),
    }


def memory_run(folder: Path) -> dict[str, Any]:
    """The allocator's history of the training step, against torch's own peak."""
    from aisp_mcp.profilers import snapshot

    script = folder / "train_peak.py"
    script.write_text(TRAIN + "\nprint('PEAK', torch.cuda.max_memory_allocated(), flush=True)\n")
    record.torch(str(script), ["6"], folder, "memory", sys.executable, 300)
    said = next(line for line in (folder / "output.txt").read_text().splitlines() if line.startswith("PEAK"))
    memory = snapshot.read(folder / "memory.json").memory[0]
    return {
        "events": memory.events,
        "peak_bytes": memory.peak_bytes,
        "torch_peak_bytes": int(said.split()[1]),
        "baseline_bytes": memory.baseline_bytes,
        "growth": memory.growth,
        "top": memory.at_peak[0].model_dump() if memory.at_peak else None,
    }


def nccl_run(folder: Path) -> dict[str, Any]:
    """Two GPUs: collectives with sizes, exposure and bus bandwidth."""
    import os

    import torch

    if torch.cuda.device_count() < 2:
        return {"skipped": "needs two GPUs"}
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--standalone",
        str(folder.parent / "nccl.py"),
    ]
    done = subprocess.run(argv, env={**os.environ, "OUT": str(folder)}, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": done.stderr[-1500:]}
    profile = load.load(folder / "rank0.json")
    assert profile.timeline is not None
    sizes = [c.model_dump() for c in profile.timeline.collectives]
    rates = [c["busbw_bytes_per_s"] for c in sizes if c["busbw_bytes_per_s"]]
    return {
        "rank": profile.rank,
        "collectives": sizes,
        "busbw_median": statistics.median(rates) if rates else None,
        "breakdown": [b.model_dump() for b in digest.breakdowns(profile)],
        "insights": _found(profile),
    }


def _keep(work: Path, out: Path) -> None:
    """Scrubbed artifacts, compressed; what may hold the environment is not among them."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (
        "nsys/report.sqlite",
        "ncu/report.raw.csv",
        "ncu/report.details.csv",
        "memory/memory.json",
        "nccl/rank0.json",
    ):
        if (work / name).exists():
            (out / (name.replace("/", "_") + ".gz")).write_bytes(gzip.compress((work / name).read_bytes(), 9))
    trace = work / "torch" / "trace.json.gz"
    if trace.exists():
        shutil.copy(trace, out / "torch_trace.json.gz")


if __name__ == "__main__":
    raise SystemExit(main())
