"""Replay the operators of a trace with their recorded shapes, and compare their times with the recorded ones.

    python validation/replay_trace.py                          # on the GPU of the trace: one JSON object
    python validation/replay_trace.py --operators FILE --device cpu
    python validation/replay_trace.py --keep TRACE FILE        # signatures and times of a trace, to carry along

Every operator that becomes a target (see docs/adapters.md) is run as that target's baseline, on inputs drawn like those
of a comparison, under torch.profiler. The figure is the one that the trace holds: time of the kernels that the operator
started itself, or on a CPU the operator's own and its callees' time, in microseconds a call. Before each call of `cold`
the L2 cache is overwritten; the calls of `warm` follow each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.profile.operators import targets
from aisp_mcp.profile.operators.targets import Operator

RECORDED = Path(__file__).with_name("traced_operators.json")
CALLS, WARM_UP = 20, 5
FLUSH_BYTES = 256 << 20
NEAR = 0.15


def main() -> int:
    """Print the comparison as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operators", type=Path, default=RECORDED, help="file made by --keep")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--top", type=int, default=200, help="most signatures, by recorded time")
    parser.add_argument("--keep", nargs=2, type=Path, metavar=("TRACE", "FILE"))
    options = parser.parse_args()
    if options.keep:
        keep(*options.keep)
        return 0
    known = [Operator(**fields) for fields in json.loads(options.operators.read_text("utf-8"))]
    print(json.dumps(compare(known[: options.top], options.device), indent=1))
    return 0


def keep(trace: Path, file: Path) -> None:
    """Write the operators of a trace that took time: names, shapes, strides, types and microseconds, nothing else."""
    known = targets.read(str(trace))
    timed = any(operator.device_us for operator in known)
    file.write_text(
        json.dumps([asdict(operator) for operator in known if operator.device_us or not timed]) + "\n", "utf-8"
    )


def compare(known: list[Operator], device: str) -> dict[str, Any]:
    """All rows, and the shares of the recorded time that was covered and that came back within NEAR."""
    rows = []
    described = targets.describe(known)
    for operator, description in zip(known, described, strict=True):
        row: dict[str, Any] = {"operator": operator.name, "dims": operator.dims, "calls": operator.calls}
        row["recorded_us"] = _recorded(operator, device) / operator.calls
        try:
            row |= (
                replay(operator, description["text"], device)
                if "text" in description
                else {"left_out": description["reason"]}
            )
        except Exception as error:  # one operator that this device or this torch does not take leaves the others
            row["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
        rows.append(row)
    total = sum(_recorded(operator, device) for operator in known)
    covered = sum(row["recorded_us"] * row["calls"] for row in rows if "cold_us" in row)
    near = sum(row["recorded_us"] * row["calls"] for row in rows if "cold_us" in row and _near(row))
    return {
        "device": _name(device),
        "covered_share": covered / total,
        "near_share_of_covered": near / covered if covered else None,
        "within": NEAR,
        "operators": rows,
    }


def _recorded(operator: Operator, device: str) -> float:
    return operator.device_us if device == "cuda" else operator.host_us


def _near(row: dict[str, Any]) -> bool:
    """Warm and cold times enclose the recorded one, or one of them is near it."""
    low, high = sorted((row["warm_us"], row["cold_us"]))
    return bool(low * (1 - NEAR) <= row["recorded_us"] <= high * (1 + NEAR))


def replay(operator: Operator, text: str, device: str) -> dict[str, Any]:
    """Mean times of CALLS calls after WARM_UP, warm and cold. Raises whatever the operator raises."""
    import torch

    space: dict[str, Any] = {"__name__": "target"}
    exec(compile(text, "target", "exec"), space)
    kinds = [kind for kind in space.values() if isinstance(kind, type) and issubclass(kind, Benchmark)]
    target = next(kind for kind in kinds if kind is not Benchmark)()
    tensors = target.inputs(CallRng(device, 1))
    flush = torch.empty(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.uint8, device=device)
    for _ in range(WARM_UP):
        target.run(**tensors)
    return {
        f"{kind}_us": _profiled(operator, target, tensors, flush, kind == "cold", device) for kind in ("warm", "cold")
    }


def _profiled(operator: Operator, target: Any, tensors: dict[str, Any], flush: Any, cold: bool, device: str) -> float:
    """Microseconds of one call, read from a trace of our own as from the recorded one. Raises ValueError."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=kinds, record_shapes=True) as profiler:
        flush.bitwise_not_()  # has a shape, which a trace of numbers alone would lack
        for _ in range(CALLS):
            if cold:
                flush.bitwise_not_()
            target.run(**tensors)
        if device == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        matches = [each for each in targets.read(file) if each.name == operator.name]
    calls = sum(each.calls for each in matches)
    if not calls:
        raise ValueError("the operator does not stand in its own trace")
    return sum(_recorded(each, device) for each in matches) / calls


def _name(device: str) -> str:
    import torch

    return str(torch.cuda.get_device_name()) if device == "cuda" else "cpu"


if __name__ == "__main__":
    sys.exit(main())
