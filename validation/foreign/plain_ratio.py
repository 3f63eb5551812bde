"""The ratio of a candidate without a judge, as its author would measure it: both in this process, one after the other.

python validation/foreign/plain_ratio.py REFERENCE CANDIDATE CONSTANTS MODE: prints JSON with the ratio on the same
inputs in every call (do_bench, or torch.utils.benchmark on a CPU) and on inputs that change from call to call.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aisp_mcp.judge.candidate import adapted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SETS, CALLS, SECONDS = 3, 60, 1.5
FLUSH_BYTES = 256 << 20
SHAPED = ("hard", "cuda", "mini")  # groups whose sizes lie in shapes.py


def main() -> None:
    """Print both ratios and the times in seconds."""
    reference, candidate, constants, mode = sys.argv[1:5]
    with torch.no_grad():
        print(json.dumps(ratios(Path(reference), Path(candidate), json.loads(constants), mode)))


def ratios(reference: Path, candidate: Path, constants: dict[str, Any], mode: str) -> dict[str, float]:
    """Times and ratios of both models with the same parameters."""
    problem = adapted.load(reference, "plain_reference", constants)
    solution = adapted.load(candidate, "plain_candidate", None if mode in SHAPED else constants)
    kind = getattr(solution, "ModelNew", None) or solution.Model
    inputs = [
        [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in problem.get_inputs()]
        for _ in range(SETS)
    ]
    old, new = (model(*problem.get_init_inputs()).to(DEVICE) for model in (problem.Model, kind))
    if mode in SHAPED:
        old, new = old.eval(), new.eval()
    own = new.state_dict()
    known = {name: value for name, value in old.state_dict().items() if name in own and own[name].shape == value.shape}
    new.load_state_dict(known, strict=False)  # the times do not depend on the values of others
    results = {}
    for name, measure in (("reused", reused), ("fresh", fresh)):
        times = [measure(model, inputs) for model in (old, new)]
        results |= {name: times[0] / times[1], f"{name}_s": times[1], f"{name}_baseline_s": times[0]}
    return results


def reused(model: Callable[..., Any], inputs: list[list[Any]]) -> float:
    """Seconds of a call on the same inputs, as the usual tools measure it."""
    if DEVICE == "cuda":
        from triton.testing import do_bench

        return float(do_bench(lambda: model(*inputs[0]), return_mode="median")) / 1e3
    from torch.utils.benchmark import Timer

    timer = Timer("model(*inputs)", globals={"model": model, "inputs": inputs[0]}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=SECONDS).median)


def fresh(model: Callable[..., Any], inputs: list[list[Any]]) -> float:
    """Median of single calls, each on another set than the one before, cold in the caches of a device."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=DEVICE) if DEVICE == "cuda" else None
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    for at in range(CALLS):
        if at > 5 and time.perf_counter() > end:
            break
        times.append(_timed(model, inputs[at % len(inputs)], flush))
    return statistics.median(times[2:] or times)


def _timed(model: Callable[..., Any], arguments: list[Any], flush: Any) -> float:
    if flush is None:
        begin = time.perf_counter()
        model(*arguments)
        return time.perf_counter() - begin
    flush.zero_()
    begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin_event.record()
    model(*arguments)
    end_event.record()
    torch.cuda.synchronize()
    return float(begin_event.elapsed_time(end_event)) / 1e3


if __name__ == "__main__":
    main()
