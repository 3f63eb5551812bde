"""Every probe next to a simple reference of the same work, on one NVIDIA GPU. Not a test: run it on a card.

    python validation/run_probes.py [--out FILE] [--turns N] [--only gemm,pcie] [--no-tools] [--stop-after-s S]

Prints one JSON document: per row the probe's median, the reference's median, and their ratio (at least 0.98 is wanted).
Probe and reference take turns, because power and clocks drift; the reference is triton.testing.do_bench or a timed
copy, with random data. A step that fails or has no time left is named under "errors"; the others stand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[1])
sys.path[:0] = [ROOT, str(Path(__file__).parent)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))  # for children

import scrub  # noqa: E402

DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8", "fp32", "fp64")
KINDS = ("copy", "read", "write", "triad")
GIB = 1 << 30
ATTENTION = {"batch": 4, "heads": 32, "sequence": 4096, "head_dim": 128, "dtype": "bf16"}
STEPS = ("gemm", "bandwidth", "attention", "pcie")
TOOLS = (
    ("aisp_status", {}),
    ("aisp_triage", {}),
    ("aisp_gpu_info", {}),
    ("aisp_gpu_power", {}),
    ("aisp_gpu_topology", {}),
    ("aisp_gpu_topology_matrix", {}),
    ("aisp_system_software", {}),
    ("aisp_system_dependencies", {}),
    ("aisp_system_capabilities", {}),
    ("aisp_system_full", {}),
    ("aisp_bench_peak", {}),
    ("aisp_hw_speed", {}),
    ("aisp_hw_roofline", {}),
    ("aisp_hw_cache", {}),
    ("aisp_hw_pcie", {}),
    ("aisp_gpu_bandwidth", {}),
    ("aisp_hw_tc", {}),
    ("aisp_context_summary", {}),
    ("aisp_status", {}),
)


def reference(name: str) -> dict[str, float]:
    """Rates of the simple way, in this process: FLOP/s or bytes/s."""
    import torch

    torch.manual_seed(1)
    ways: dict[str, Callable[[Any], dict[str, float]]] = {
        "gemm": _gemm,
        "bandwidth": _bandwidth,
        "attention": _attention,
        "pcie": _pcie,
    }
    return ways[name](torch)


def _bench(call: Callable[[], Any]) -> float:
    """Median seconds of do_bench, which clears the L2 cache before each call."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=100, rep=300, return_mode="median")) / 1e3


def _best(call: Callable[[], Any]) -> float:
    """For work that the power limit holds back: the better of do_bench without a pause and in bursts with pauses."""
    from triton.testing import do_bench

    bursts = []
    for _ in range(8):
        time.sleep(0.15)
        bursts.append(float(do_bench(call, warmup=2, rep=12, return_mode="median")) / 1e3)
    return min(statistics.median(bursts), _bench(call))


def _dtypes() -> list[str]:
    """All, or those of --dtypes, which children inherit."""
    return os.environ.get("RUN_PROBES_DTYPES", ",".join(DTYPES)).split(",")


def _gemm(torch: Any) -> dict[str, float]:
    rates = {}
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    for dtype in _dtypes():
        n = 4096 if dtype == "fp64" else 8192
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
        if dtype == "fp8":
            x, y, scale = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
            call = lambda x=x, y=y, scale=scale: torch._scaled_mm(  # noqa: E731
                x, y.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        elif dtype == "int8":
            i, j = (torch.randint(-128, 128, (n, n), device="cuda", dtype=torch.int8) for _ in range(2))
            call = lambda i=i, j=j: torch._int_mm(i, j.t())  # noqa: E731
        else:
            # Drawn in their own type: a float32 has few enough digits to save power as a float64.
            x, y = (torch.randn(n, n, device="cuda", dtype=kinds.get(dtype, torch.float32)) for _ in range(2))
            call = lambda x=x, y=y: torch.mm(x, y)  # noqa: E731
        rates[dtype] = 2.0 * n**3 / _best(call)
    return rates


def _bandwidth(torch: Any) -> dict[str, float]:
    a, b, c = (torch.rand(GIB // 4, device="cuda") for _ in range(3))
    return {
        "copy": 2 * GIB / _bench(lambda: b.copy_(a)),
        "read": GIB / _bench(lambda: a.sum()),
        "write": GIB / _bench(lambda: b.fill_(1.0)),
        "triad": 3 * GIB / _bench(lambda: torch.add(a, b, alpha=3.0, out=c)),
    }


def _attention(torch: Any) -> dict[str, float]:
    b, h, s, d = (ATTENTION[key] for key in ("batch", "heads", "sequence", "head_dim"))
    q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    flops = 4.0 * b * h * s * s * d
    return {
        "sdpa_full": flops / _best(lambda: attend(q, k, v)),
        "sdpa_causal": flops / 2 / _best(lambda: attend(q, k, v, is_causal=True)),
    }


def _pcie(torch: Any) -> dict[str, float]:
    size = 256 << 20
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True).random_()
    # Not pinned: clone does not keep that. Six take turns, because one may stay in the processor's last cache.
    pageable = itertools.cycle([host.clone() for _ in range(6)])
    there = torch.empty(size, dtype=torch.uint8, device="cuda")

    def timed(call: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(20):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) / 1e3)
        return size / statistics.median(seconds)

    back, other = torch.empty_like(host, pin_memory=True), there.clone()
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def both() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.cuda.stream(up):
            there.copy_(host, non_blocking=True)
        with torch.cuda.stream(down):
            back.copy_(other, non_blocking=True)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    return {
        "bidirectional_pinned": 2 * size / statistics.median(both() for _ in range(20)),
        "h2d_pinned": timed(lambda: there.copy_(host, non_blocking=True)),
        "d2h_pinned": timed(lambda: host.copy_(there, non_blocking=True)),
        "h2d_pageable": timed(lambda: there.copy_(next(pageable))),
        "d2h_pageable": timed(lambda: next(pageable).copy_(there)),
    }


def probe(name: str) -> tuple[dict[str, float], dict[str, str]]:
    """Medians of the product's own probe, and the library path that each took."""
    from aisp_mcp.machine.probes import probe_runner
    from aisp_mcp.machine.probes.probe_runner import rate

    params: dict[str, dict[str, Any]] = {
        "gemm": {"dtypes": _dtypes(), "size": 8192},
        "bandwidth": {"kinds": list(KINDS), "size_bytes": GIB},
        "attention": ATTENTION,
        "pcie": {"size_bytes": 256 << 20},
    }
    reply = probe_runner.ask(name, {"device": "cuda:0", "rounds": 12, "budget_s": 30, **params[name]}, 90)
    for what, why in reply.get("skipped", {}).items():
        print(f"{name} {what} skipped: {why}", file=sys.stderr)
    return {what: rate(values).median for what, values in reply["samples"].items()}, reply.get("paths", {})


def compare(name: str, turns: int, rows: list[dict[str, Any]]) -> None:
    """Adds the rows of one probe, as far as it came; the reference runs in a process of its own, like the probe."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    paths: dict[str, str] = {}
    try:
        for turn in range(turns):
            for source in ("probe", "reference") if turn % 2 == 0 else ("reference", "probe"):
                if source == "probe":
                    rates, paths = probe(name)
                else:
                    rates = _in_child(name)
                for what, value in rates.items():
                    (ours if source == "probe" else theirs).setdefault(what, []).append(value)
    finally:
        rows += [_row(name, what, values, theirs.get(what), paths.get(what)) for what, values in ours.items()]


def _row(name: str, what: str, mine: list[float], other: list[float] | None, path: str | None) -> dict[str, Any]:
    value = statistics.median(mine)
    reference = statistics.median(other) if other else None
    return {
        "probe": f"{name} {what}",
        "value": value,
        "reference": reference,
        "ratio": round(value / reference, 4) if reference else None,
        "turns": {"probe": mine, "reference": other},
        "path": path,
    }


def _in_child(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--reference", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"reference {name}: {done.stderr[-800:]}")
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


class Run:
    """The document, rewritten after each step, so that a stop loses one step only."""

    def __init__(self, out: str | None, stop_after_s: float) -> None:
        from aisp_mcp.system import manifest

        self._out, self._began, self._stop_after_s = out, time.monotonic(), stop_after_s
        self.rows: list[dict[str, Any]] = []
        self.errors: dict[str, str] = {}
        self.document: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "environment": manifest.manifest(),
            "rows": self.rows,
            "errors": self.errors,
        }

    def step(self, name: str, work: Callable[[], Any]) -> None:
        """One step, unless the time is over."""
        began = time.monotonic()
        if began - self._began > self._stop_after_s:
            self.errors[name] = f"not run: {self._stop_after_s:g} s were over"
        else:
            try:
                work()
            except Exception as error:
                self.errors[name] = f"{type(error).__name__}: {str(error)[:1500]}"
            print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        short = [row["probe"] for row in self.rows if row["ratio"] is not None and row["ratio"] < 0.98]
        self.document["below_0.98"] = short
        if self._out:
            Path(self._out).write_text(scrub.text(self.document))


def tools(run: Run, names: list[str]) -> None:
    """The tools themselves, with the time each took; status is asked again at the end, warm."""
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch.calls import execute
    from aisp_mcp.server.dispatch.loading import load_catalog

    tool_rows = run.document.setdefault("tools", {})
    ctx = Context()
    load_catalog(ctx.settings)

    def call(name: str, args: dict[str, Any]) -> None:
        began = time.perf_counter()
        envelope = execute(name, args, ctx).model_dump(mode="json", exclude_none=True)
        key = name if name not in tool_rows else f"{name} (warm)"
        tool_rows[key] = {"ms": round((time.perf_counter() - began) * 1e3, 2), **envelope}
        if envelope["status"] != "ok":
            run.errors[key] = str(envelope.get("error"))[:600]

    for name, args in TOOLS:
        if not names or name in names:
            run.step(name, lambda name=name, args=args: call(name, args))


def main() -> int:
    """0 when every ratio is at least 0.98 and nothing failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    parser.add_argument("--turns", type=int, default=2, help="how often probe and reference take turns")
    parser.add_argument("--only", help="names of comparisons, device, launch and tools, with commas; default: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of the gemm comparison")
    parser.add_argument("--no-tools", action="store_true", help="the comparisons alone")
    parser.add_argument("--stop-after-s", type=float, default=1800.0, help="start no further step after this time")
    options = parser.parse_args()
    if options.reference:
        print(json.dumps(reference(options.reference)))
        return 0
    os.environ["RUN_PROBES_DTYPES"] = options.dtypes
    only = options.only.split(",") if options.only else []
    run = Run(options.out, options.stop_after_s)
    for name in STEPS:
        if not only or name in only:
            run.step(name, lambda name=name: compare(name, options.turns, run.rows))
    for name in ("device", "launch"):
        if not only or name in only:
            run.step(name, lambda name=name: run.document.update({name: _ask(name)}))
    if not options.no_tools:
        tools(run, only)
    print(json.dumps({key: run.document[key] for key in ("rows", "below_0.98", "errors")}, indent=1))
    return 1 if run.document["below_0.98"] or run.errors else 0


def _ask(name: str) -> dict[str, Any]:
    from aisp_mcp.machine.probes import probe_runner

    return probe_runner.ask(name, {"device": "cuda:0", "rounds": 12}, 90)


if __name__ == "__main__":
    sys.exit(main())
