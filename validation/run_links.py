"""Copies and collectives between GPUs of one host. Not a test: run it on a machine with two or more.

    python validation/run_links.py [--out FILE] [--max-bytes N]

Prints one JSON document: pairwise copies next to a plain torch copy, and the bus bandwidth of each collective from
1 KB to 1 GB under torchrun with NCCL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[1])
sys.path[:0] = [ROOT, str(Path(__file__).parent)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))  # for children

import scrub  # noqa: E402


def plain_copy(size: int) -> dict[str, float]:
    """Bytes/s of Tensor.copy_ from GPU 0 to GPU 1, each call timed with events."""
    import torch

    here, there = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{n}") for n in range(2))
    seconds = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        there.copy_(here, non_blocking=True)
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return {"0->1": size / statistics.median(seconds[5:])}


def main() -> int:
    """0 when all of it ran and the probe reaches 98 % of the plain copy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out")
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reference:
        print(json.dumps(plain_copy(256 << 20)))
        return 0
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch.calls import execute
    from aisp_mcp.server.dispatch.loading import load_catalog
    from aisp_mcp.system import manifest

    ctx = Context()
    load_catalog(ctx.settings)
    document: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": manifest.manifest(),
        "reference": _reference(),
    }
    every = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("aisp_gpu_topology", {}),
        ("aisp_gpu_topology_matrix", {}),
        ("aisp_gpu_info", {}),
        ("aisp_triage", {}),
        ("aisp_hw_p2p", {}),
        ("aisp_hw_nccl", {"collectives": every, "min_bytes": 1024, "max_bytes": options.max_bytes}),
    ]
    for name, args in calls:
        began = time.perf_counter()
        document[name] = execute(name, args, ctx).model_dump(mode="json", exclude_none=True)
        print(f"{name}: {document[name]['status']}, {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        if name == "aisp_hw_p2p":
            document["p2p_ratio"] = _ratio(document)
        if options.out:  # after each call: a stop loses one only
            Path(options.out).write_text(scrub.text(document))
    print(json.dumps({name: document[name] for name in ("reference", "p2p_ratio", "aisp_hw_p2p")}, indent=1))
    good = all(document[name]["status"] == "ok" for name, _ in calls)
    ratio = document["p2p_ratio"]
    return 0 if good and ratio is not None and ratio >= 0.98 else 1


def _reference() -> dict[str, float]:
    """The plain copy, in a process of its own, so that this one holds no device memory."""
    done = subprocess.run([sys.executable, __file__, "--reference"], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        print(done.stderr[-1500:], file=sys.stderr)
        return {}
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def _ratio(document: dict[str, Any]) -> float | None:
    for item in (document["aisp_hw_p2p"].get("result") or {}).get("results", []):
        if item["name"] == "0->1" and document["reference"]:
            return round(item["rate"]["median"] / document["reference"]["0->1"], 4)
    return None


if __name__ == "__main__":
    sys.exit(main())
