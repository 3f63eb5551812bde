"""Run a hardware probe: choose the device, run the child, turn samples into rates, compare them with references."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.machine.probes.children.child import MARK
from aisp_mcp.machine.probes.records import Against, Placed, Probe, Rate
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.system import cpu, software, topology
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.records import Problem
from aisp_mcp.system.sampler import Sampler

ROUNDS = 12
UNITS = {"gemm": "FLOP/s", "attention": "FLOP/s", "launch": "s"}


@dataclass(frozen=True)
class Device:
    """Device of a probe. name: from torch or the kernel; key: identifies its best rates in the store."""

    torch: str
    name: str
    key: str
    facts: GpuFacts | None
    why: str | None = None  # reason for using the CPU although a GPU or its driver exists

    @property
    def is_gpu(self) -> bool:
        return self.torch != "cpu"


def gpus() -> tuple[int, Problem | None]:
    """Number of GPUs that answer through NVML, and the problem: no driver, no card, or one that does not work."""
    reading = nvml.read(brief=True)
    faults = [gpu.problem for gpu in reading.gpus if gpu.problem is not None]
    return len(reading.gpus) - len(faults), reading.problem or next(iter(faults), None)


def on_gpu() -> bool:
    """Return True if probes will use a GPU: NVML shows one and torch is a CUDA build."""
    return gpus()[0] > 0 and software.torch_cuda() is not None


def require_gpu(count: int = 1) -> None:
    """Raise Unavailable: NO_GPU, NEEDS_MULTI_GPU, TORCH_WITHOUT_CUDA, or the code of the driver's problem."""
    working, problem = gpus()
    if working and software.torch_cuda() is None:
        raise Unavailable(
            "TORCH_WITHOUT_CUDA",
            f"{working} GPU(s) are here, but torch is not installed as a CUDA build.",
            "Install a CUDA build of torch.",
            (("aisp_system_software", {}), ("aisp_system_dependencies", {})),
        )
    if working == 0:
        sick = problem is not None and problem.code not in _ABSENT
        raise Unavailable(
            problem.code if problem and sick else "NO_GPU",
            problem.message if problem and sick else "No NVIDIA GPU: NVML (libnvidia-ml.so.1) shows none.",
            (problem.hint if problem and sick else None) or _ON_CPU,
            (("aisp_hw_speed", {}), ("aisp_triage", {})),
        )
    if working < count:
        raise Unavailable(
            "NEEDS_MULTI_GPU",
            f"{count} GPUs are needed; NVML shows {working}.",
            "aisp_hw_pcie measures the link of this one; aisp_hw_nccl runs on CPU ranks.",
            (("aisp_hw_pcie", {}), ("aisp_gpu_topology", {})),
        )


_ABSENT = ("NO_DRIVER", "NO_DEVICES")
_ON_CPU = "aisp_hw_speed, aisp_hw_tc, aisp_hw_cache and aisp_hw_roofline measure the CPU instead."


def host(why: str | None = None) -> Device:
    """The processors of this machine."""
    processor = cpu.read()
    return Device("cpu", f"cpu: {processor.model or processor.architecture}", "cpu", None, why)


def choose() -> Device:
    """GPU 0 as torch numbers them, else the CPU. Raises ProcessError if torch cannot tell."""
    count, problem = gpus()
    if count == 0:
        sick = problem is not None and problem.code not in _ABSENT
        return host(f"{problem.code}: {problem.message}" if problem and sick else None)
    if software.torch_cuda() is None:
        return host(f"TORCH_WITHOUT_CUDA: {count} GPU(s) are here, but torch is not a CUDA build.")
    reply = ask("device", {"device": "cuda:0"}, timeout_s=120)
    if not reply["cuda"]:
        raise Unavailable(
            "CUDA_UNUSABLE",
            "NVML shows a GPU, but torch.cuda.is_available() is false.",
            "Check CUDA_VISIBLE_DEVICES and that the driver supports torch's CUDA version.",
            (("aisp_triage", {}), ("aisp_system_software", {})),
        )
    return Device("cuda:0", reply["name"], reply["uuid"], load.gpu(reply["name"]))


def with_references(
    ctx: Context, device: Device, kind: str, samples: Mapping[str, Sequence[float]], specs: Mapping[str, Against]
) -> list[Placed]:
    """One Placed per name; specs and bests are looked up by name. kind: prefix under which bests are stored."""
    placed = []
    for name, values in samples.items():
        unit = "OP/s" if name == "int8" else UNITS.get(kind, "B/s")
        rows = rate(values)
        best = None
        if unit != "s":
            stored = ctx.store.best_measurement(f"{kind}_{name}", device.key)
            if stored is not None:
                source = time.strftime("best stored by aisp bench peak, %Y-%m-%d", time.gmtime(stored.measured_at))
                best = against(stored.value, rows.median, source)
        spec = specs.get(name)
        placed.append(Placed(name=name, unit=unit, rate=rows, spec=_measured(spec, rows.median), best=best))
    return placed


def against(value: float, measured: float, source: str) -> Against:
    """A reference and the share of it that was reached."""
    return Against(value=value, share=round(measured / value, 4), source=source)


def _measured(spec: Against | None, measured: float) -> Against | None:
    return None if spec is None else against(spec.value, measured, spec.source)


def peak_specs(device: Device) -> dict[str, Against]:
    """Datasheet FLOP/s per dtype, dense; empty for an unknown card or a CPU.

    fp64 products run on tensor cores that support fp64: then that is the peak.
    """
    if device.facts is None:
        return {}
    source = f"datasheet, dense, {device.facts.sku}, {device.facts.checked}, confidence {device.facts.confidence}"
    peaks = dict(device.facts.peak)
    if "fp64_tensor" in peaks:
        peaks["fp64"] = peaks["fp64_tensor"]
    return {name: Against(value=peak.dense * 1e12, share=0.0, source=source) for name, peak in peaks.items()}


def bandwidth_specs(device: Device, kinds: Sequence[str]) -> dict[str, Against]:
    """Datasheet memory bandwidth in bytes/s for each kind."""
    if device.facts is None:
        return {}
    source = f"datasheet, {device.facts.sku}, {device.facts.checked}, confidence {device.facts.confidence}"
    spec = Against(value=device.facts.memory.bandwidth_bytes_s, share=0.0, source=source)
    return dict.fromkeys(kinds, spec)


def unknown_note(device: Device) -> list[str]:
    """The reason for a missing datasheet reference."""
    if device.facts is not None:
        return []
    if not device.is_gpu:
        because = [f"The GPU was not measured. {device.why}"] if device.why else []
        return [*because, "Measured on the CPU: there are no datasheet references for processors."]
    return [f"'{device.name}' is not in the table of GPU facts: no share of the datasheet is given."]


def pcie_link(device: Device) -> float | None:
    """Theoretical bytes/s per direction of this GPU's trained PCIe link."""
    for gpu in topology.read().gpus:
        if gpu.uuid == device.key:
            return gpu.pcie_per_direction_bytes_s
    return None


def probe(
    ctx: Context,
    device: Device,
    kind: str,
    params: dict[str, Any],
    timeout_s: float,
    specs: Mapping[str, Against],
) -> Probe:
    """Run one child and compare its samples with references. kind: the child's name, and the prefix of stored bests."""
    began = time.monotonic()
    ctx.progress(0.0, 1.0, f"{kind} on {device.name}")
    full = {"device": device.torch, "rounds": ROUNDS, "budget_s": 0.4 * timeout_s, **params}
    with Sampler() as watch:
        reply = ask(kind, full, timeout_s)
    samples = reply.pop("samples")
    sustained = reply.pop("sustained", {})
    skipped = [f"{name} was not measured: {why}" for name, why in reply.pop("skipped", {}).items()]
    flags = [f"{kind}: {flag['code']}: {flag['message']}" for flag in watch.summary()["flags"]]
    placed = with_references(ctx, device, kind, samples, specs)
    return Probe(
        device=device.name,
        device_id=device.key,
        results=[_with_sustained(item, sustained.get(item.name)) for item in placed],
        notes=[*unknown_note(device), *skipped, *flags],
        conditions=reply,
        seconds=round(time.monotonic() - began, 3),
    )


def _with_sustained(item: Placed, value: float | None) -> Placed:
    """The rate in short bursts, with the rate under the power limit in a note."""
    if value is None:
        return item
    note = f"In short bursts after a rest; {numbers.quantity(value, item.unit)} in a second without a pause."
    return item.model_copy(update={"note": note})


def keep(ctx: Context, device: Device, kind: str, results: Sequence[Placed], conditions: Mapping[str, Any]) -> int:
    """Store the medians as ceilings of this device; return how many."""
    rates = [item for item in results if item.unit != "s"]
    for item in rates:
        detail = {"interval": [item.rate.low, item.rate.high], "rounds": item.rate.rounds, **conditions}
        ctx.store.put_measurement(f"{kind}_{item.name}", device.key, item.rate.median, item.unit, detail)
    return len(rates)


def argv(name: str) -> list[str]:
    """The command; it reads its parameters from standard input."""
    from aisp_mcp.process import python

    return python.module("aisp_mcp.machine.probes.children.child", name)


def ask(
    name: str,
    params: dict[str, Any],
    timeout_s: float,
    command: list[str] | None = None,
    environ: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run the child and return its answer. Raises Unavailable NOT_INSTALLED without torch; ProcessError TIMEOUT,
    CRASHED, PROBE_FAILED.
    """
    from aisp_mcp.process.python import SAFE
    from aisp_mcp.process.run import run
    from aisp_mcp.system.software import version

    if version("torch") is None:
        raise Unavailable(
            "NOT_INSTALLED",
            "torch is not installed in this environment; this probe computes with it.",
            "pip install 'aisp-mcp[bench]'",
            (("aisp_system_dependencies", {}), ("aisp_hw_disk", {})),
        )
    done = run(
        command or argv(name),
        timeout_s=timeout_s,
        env={**(environ or os.environ), **SAFE},
        cwd="/",
        stdin=json.dumps(params),
        max_output=4_000_000,
    )
    reply = answer(done.stdout)
    if reply is None:
        if done.timed_out:
            raise ProcessError("TIMEOUT", f"The {name} probe took longer than {timeout_s:g} s.", "Raise timeout_s.")
        last_lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        message = (
            f"The {name} probe ended with code {done.returncode}: {last_lines[-1][:300] if last_lines else 'no output'}"
        )
        raise ProcessError("CRASHED", message)
    if "error" in reply:
        raise ProcessError("PROBE_FAILED", f"The {name} probe: {reply['error']}")
    return reply


def answer(stdout: str) -> dict[str, Any] | None:
    """The last marked line, decoded."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(MARK):
            reply: dict[str, Any] = json.loads(line[len(MARK) :])
            return reply
    return None


def ask_ranks(params: dict[str, Any], ranks: int, timeout_s: float) -> dict[str, Any]:
    """Run the collectives probe under torchrun, one process per rank. Errors as `ask`."""
    from aisp_mcp.machine.probes.children import nccl

    # One thread per rank: ranks with a thread pool each would compete for the processors.
    environ = {**os.environ, "AISP_PROBE_PARAMS": json.dumps(params), "OMP_NUM_THREADS": "1"}
    return ask("nccl", {}, timeout_s, nccl.argv(ranks), environ)


def rate(samples: Sequence[float], confidence: float = 0.95) -> Rate:
    """Median, and the narrowest order-statistic interval that covers it with `confidence`; with few samples, their
    whole range.

    The interval [x(k), x(n+1-k)] covers the median with 1 - 2 P(Binomial(n, 1/2) < k); level is the coverage reached.
    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered, n = sorted(samples), len(samples)
    k = 1
    while k + 1 <= n // 2 and _coverage(n, k + 1) >= confidence:
        k += 1
    return Rate(
        median=statistics.median(ordered),
        low=ordered[k - 1],
        high=ordered[n - k],
        level=round(_coverage(n, k), 4),
        rounds=n,
    )


def _coverage(n: int, k: int) -> float:
    """Probability that the median is between the k-th smallest and the k-th largest of n."""
    return max(0.0, 1.0 - sum(math.comb(n, i) for i in range(k)) * 0.5 ** (n - 1))
