"""A baseline or candidate as a plain program under a profiler. Nothing here is timed, compared or judged.

Each call is in a range named step, for NVTX and for torch.profiler; cudaProfilerStart and cudaProfilerStop enclose the
calls, so that a profiler can leave import, inputs and warm-up out. The judge's cache flush between calls is left out,
because it would appear in the profile. A call of an engine is the beginning of a trace.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import nvtx

from aisp_mcp.bench import DistributedBenchmark, Host, ServingBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.programs.serving import engine
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.module_loader import common_of, entry, load_spec
from aisp_mcp.judge.verifier.inputs.files import opened
from aisp_mcp.judge.verifier.requirements import missing_needs

CALLS, WARMUP = 10, 3
_BUDGET = {"cpu": 1 << 30, "cuda": 8 << 30}  # bytes of inputs prepared in advance
_FILES = ExitStack()  # of inputs, until the process ends
atexit.register(_FILES.close)


def play(baseline: str, candidate: str | None = None, *, size: str, device: str, threads: int) -> None:
    """Run the candidate, or the baseline if it is None. Every call gets its own inputs as long as they fit in memory.

    Writes calls.json in the working folder after the last call.

    Raises BenchmarkError NEEDS if this machine does not meet the benchmark's needs, and whatever the program raises.
    """
    torch, spec, run, inputs = prepared(baseline, candidate, size, device, threads, CALLS)
    calls, warmup = (len(inputs), 0) if isinstance(spec, ServingBenchmark) else (CALLS, WARMUP)
    loop(torch, device, run, inputs, calls, warmup)
    Path("calls.json").write_text(json.dumps({"calls": calls, "inputs": len(inputs), "ranks": 1}))


def loop(
    torch: Any,
    device: str,
    run: Callable[..., Any],
    inputs: list[dict[str, Any]],
    calls: int,
    warmup: int,
    meet: Callable[[], object] = lambda: None,
    record: bool = True,
) -> None:
    """Warm up, then run the calls, each in a range. meet: called before the first one. record: for a profiler."""
    for at in range(warmup):
        run(**copied(inputs[at % len(inputs)]))
    meet()
    with _recorded(torch, device) if record else nullcontext():
        for at in range(calls):
            with _Step(torch, device):
                run(**inputs[at % len(inputs)])


def prepared(
    baseline: str, candidate: str | None, size: str, device: str, threads: int, calls: int
) -> tuple[Any, Any, Callable[..., Any], list[dict[str, Any]]]:
    """(torch, specification, the program's `run`, inputs for as many calls as memory allows).

    Raises BenchmarkError NEEDS if this machine does not meet the benchmark's needs.
    """
    from aisp_mcp.judge.candidate.calling import with_values  # this module and the next import torch
    from aisp_mcp.judge.verifier.inputs.made import drawn

    spec = drawn(load_spec(Path(baseline), size))
    if isinstance(spec, DistributedBenchmark):
        hint = "Profile it: aisp bench run --targets T --profile minimal."
        raise BenchmarkError("RANKS", "The energy of several ranks is not measured: each has a device.", hint)
    if lacking := missing_needs(spec.needs, threads, len(os.sched_getaffinity(0))):
        raise BenchmarkError("NEEDS", f"This benchmark needs {', '.join(lacking)}.")
    seed = int.from_bytes(os.urandom(6))
    torch = CallRng(device, seed).torch
    torch.set_num_threads(threads)
    params = dict(spec.params(CallRng(device, seed, secret_statistics=False)))
    setup = setup_of(baseline, candidate, size)
    if isinstance(spec, ServingBenchmark):
        return torch, spec, *engine(torch, spec, setup, params, CallRng("cpu", seed + 1, secret_statistics=False))
    inputs = [stored(spec.inputs(CallRng(device, seed + 1)))]
    most = fit(device, inputs[0])
    inputs += [stored(spec.inputs(CallRng(device, seed + at))) for at in range(2, min(calls, most) + 1)]
    run = entry(setup, params, copied(inputs[0]))
    if spec.answers is not None and not hasattr(run, "steps"):
        run = with_values(run, spec.make is not None)
    return torch, spec, run, inputs


def setup_of(baseline: str, candidate: str | None, size: str) -> dict[str, Any]:
    """Setup of one program for module_loader.entry()."""
    common = str(common_of(Path(baseline)))
    return {"path": candidate or baseline, "baseline": candidate is None, "size": size, "common": common}


def fit(device: str, inputs: dict[str, Any]) -> int:
    """Number of calls whose inputs fit in memory, if all are as large as these."""
    size = sum(int(tensor.nbytes) for tensor in inputs.values() if not isinstance(tensor, str))
    return _BUDGET[device] // max(1, size)


def copied(inputs: dict[str, Any]) -> dict[str, Any]:
    """Copies of inputs for calls before the recording, since a program may change its inputs in place."""
    return {name: value.clone() if hasattr(value, "clone") else value for name, value in inputs.items()}


def stored(named: dict[str, Any]) -> dict[str, Any]:
    """Inputs of one call; its files stay in the temporary folder until this process ends."""
    inputs = {name: value.tensor.cpu() if isinstance(value, Host) else value for name, value in named.items()}
    return _FILES.enter_context(opened(inputs))


class _Step:
    """One call, marked for both kinds of profiler. Not a generator: its frames confuse torch.profiler's stacks."""

    def __init__(self, torch: Any, device: str) -> None:
        # nsys understands torch's own NVTX of its CUDA version; a CPU build has none.
        self.push = torch.cuda.nvtx.range_push if device == "cuda" else nvtx.push_range
        self.pop = torch.cuda.nvtx.range_pop if device == "cuda" else nvtx.pop_range
        self.marked = torch.profiler.record_function("step")

    def __enter__(self) -> None:
        self.push("step")
        self.marked.__enter__()

    def __exit__(self, *error: object) -> None:
        self.marked.__exit__(*error)
        self.pop()


@contextmanager
def _recorded(torch: Any, device: str) -> Iterator[None]:
    """Record between the calls of CUDA's profiler API, with the device idle at both ends.

    Without a device, these calls may fail. That is ignored, since they are not needed then.
    """
    if device == "cuda":
        torch.cuda.synchronize()
    with suppress(AssertionError, RuntimeError):
        torch.cuda.profiler.start()
    yield
    if device == "cuda":
        torch.cuda.synchronize()
    with suppress(AssertionError, RuntimeError):
        torch.cuda.profiler.stop()
