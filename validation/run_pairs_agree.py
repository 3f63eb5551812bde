"""Every pair at its default size on a GPU, without the judge: agreement with float64, time per call, peak memory.

python validation/run_pairs_agree.py [TARGET...]: a quick look before verdicts are asked for. Exit status 1 if a
candidate fails or disagrees. Times are medians of five calls between events, caches warm: hints, no measurements.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "benchmarks"))

import torch
from agreement import ROOTS

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.module_loader import flatten, load_module, load_spec
from aisp_mcp.judge.verifier.checks.tolerance import compare
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites.records import Target, Variant


class OnDevice:
    """One target at its default size, with outputs of the baseline and the reference for one call."""

    def __init__(self, target: Target) -> None:
        torch.cuda.reset_peak_memory_stats()
        self.spec: Benchmark = load_spec(Path(target.path), "default")
        self.params = dict(self.spec.params(CallRng("cuda", 2, secret_statistics=False)))
        self.time = clock(lambda inputs: self.spec.run(**inputs, **self.params), self.inputs)
        self.outputs = [flatten(output) for output in ReferenceEvaluator(self.spec, self.params).both(self.inputs(7))]

    def inputs(self, seed: int) -> dict[str, Any]:
        return dict(self.spec.inputs(CallRng("cuda", seed)))

    def look(self, variant: Variant) -> tuple[float, list[str]]:
        """(milliseconds, what is wrong)."""
        module = load_module(Path(variant.path), "aisp_candidate")
        prepare = getattr(module, "prepare", None)
        static = prepare(dict(self.params), self.inputs(3)) if prepare else self.params
        wrong = []
        outputs = flatten(module.run(**self.inputs(7), **static))
        for (name, out), (_, base), (_, ref) in zip(outputs, *self.outputs, strict=True):
            if (out.dtype, out.shape) != (base.dtype, base.shape):
                wrong.append(f"{name}: {out.dtype} {tuple(out.shape)} {out.stride()}")
            elif not self.spec.tolerance.stochastic and (why := compare(out, base, ref, self.spec.tolerance)[1]):
                wrong.append(f"{name}: {why}")
        return clock(lambda inputs: module.run(**inputs, **static), self.inputs), wrong


def clock(call: Callable[[dict[str, Any]], Any], inputs: Callable[[int], dict[str, Any]]) -> float:
    """Milliseconds of a warm call."""
    call(inputs(21))
    times = []
    for seed in range(22, 27):
        given = inputs(seed)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call(given)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(sorted(times)[2])


def show(target: Target, variants: list[Variant]) -> int:
    """Print one target; returns how many candidates fail."""
    try:
        device_target = OnDevice(target)
    except Exception as error:
        print(f"{target.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return 1
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"{target.name}: {device_target.time:.3f} ms, {peak:.1f} GiB at the peak, reference included", flush=True)
    failed = 0
    for variant in variants:
        try:
            took, wrong = device_target.look(variant)
            print(
                f"  {variant.name or 'plain'}: {took:.3f} ms, {device_target.time / took:.2f}x {wrong or 'agrees'}",
                flush=True,
            )
        except Exception as error:
            wrong = [f"{type(error).__name__}: {str(error)[:300]}"]
            print(f"  {variant.name or 'plain'}: {wrong[0]}", flush=True)
        failed += bool(wrong)
    return failed


def main(names: list[str]) -> int:
    print(torch.cuda.get_device_name(), torch.__version__)
    failed = 0
    for target, variants in suites.resolve(ROOTS, names or ["*"]):
        failed += 0 if target.needs.get("ranks") else show(target, variants)
        gc.collect()
        torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
