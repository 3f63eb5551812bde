"""The environment of a run: everything that must be equal before two runs may be compared."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from aisp_mcp.system import container, cpu, memory, slurm, software
from aisp_mcp.system.files import ROOT
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.records import Gpu
from aisp_mcp.system.redact import redact

# Variables that change speed or results. An allow-list: the environment may hold secrets.
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "MALLOC_CONF",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_COMPILE_DISABLE",
    "TRITON_INTERPRET",
)
# Momentary readings: recorded, but never a difference between two environments.
_MOMENT = ("at", "noise", "neighbours", "commit")  # commit: of the measured code, not part of the machine
_NOISE_POINTS = 5.0


def manifest(root: Path = ROOT, deadline_s: float = 3.0) -> dict[str, Any]:
    """Hardware, driver, versions, settings, limits and noise. Sizes in bytes, clocks in MHz, power in watts."""
    reading = nvml.read(deadline_s)
    software_facts = software.read(root, reading.cuda_driver)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": _host(root),
        "gpus": [_gpu(gpu) for gpu in reading.gpus],
        "gpu_problem": reading.problem.code if reading.problem else None,
        "driver": reading.driver or software_facts.driver,
        "cuda_driver": reading.cuda_driver,
        "software": {
            "python": software_facts.python,
            **{name: software_facts.packages.get(name) for name in ("torch", "triton", "numpy")},
            "torch_cuda": software_facts.torch_cuda,
            "toolkit": software_facts.toolkit,
            **software_facts.libraries,
        },
        "settings": _settings(root),
        "limits": container.limits(root).model_dump(exclude={"throttled_periods", "throttled_s"}),
        "cluster": slurm.allocation() or _reached(),
        "surroundings": container.read(root).model_dump(exclude={"evidence"}),
        "variables": {name: redact(os.environ[name]) for name in VARIABLES if name in os.environ},
        "noise": memory.pressure(root).model_dump(),
        "neighbours": {gpu.uuid or str(gpu.index): len(gpu.activity.processes or []) for gpu in reading.gpus},
    }


def _reached() -> dict[str, Any] | None:
    """The name under which a job's submitter reached this machine, and its own; None for a job from here."""
    host = os.environ.get("AISP_REACHED_AS")
    if not host:
        return None
    node = os.environ.get("AISP_POD_NODE") or os.uname().nodename
    return {"scheduler": host.partition("://")[0], "host": host, "node": node}


def _host(root: Path) -> dict[str, Any]:
    processor, host = cpu.read(root), memory.read(root)
    return {
        "cpu": processor.model,
        "architecture": processor.architecture,
        "logical": processor.logical,
        "usable": processor.usable,
        "isa": processor.isa,
        "memory_bytes": host.total_bytes,
        "numa_nodes": len(cpu.numa(root)),
    }


def _settings(root: Path) -> dict[str, Any]:
    host = memory.read(root)
    return {
        "governor": cpu.governor(root),
        "smt": cpu.read(root).smt,
        "transparent_hugepages": host.transparent_hugepages,
        "thp_defrag": host.thp_defrag,
        "numa_balancing": host.numa_balancing,
        "swappiness": host.swappiness,
        "memlock_bytes": host.memlock_bytes,
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "compute_capability": gpu.compute_capability,
        "memory_bytes": gpu.memory.total_bytes,
        "sm_max_mhz": gpu.clocks.sm_max_mhz,
        "sm_application_mhz": gpu.clocks.sm_application_mhz,
        "memory_max_mhz": gpu.clocks.memory_max_mhz,
        "power_limit_w": gpu.power.limit_w,
        "persistence": gpu.modes.persistence,
        "compute_mode": gpu.modes.compute_mode,
        "mig": gpu.modes.mig,
        "ecc": gpu.health.ecc_enabled,
        "pcie": f"gen{gpu.pcie.generation_max} x{gpu.pcie.width_max}" if gpu.pcie.generation_max else None,
    }


def manifest_difference(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Differences between two manifests, one sentence each; empty when they are comparable.

    Momentary readings (pressure, steal) count only if they differ by more than 5 points.
    """
    left, right = _flat(a), _flat(b)
    lines = []
    for key in sorted(left.keys() | right.keys()):
        before, after = left.get(key), right.get(key)
        if before != after:
            lines.append(f"{key}: {_say(before)} → {_say(after)}")
    return lines + _noise(a.get("noise") or {}, b.get("noise") or {})


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = [(str(k), v) for k, v in value.items() if prefix or k not in _MOMENT]
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        items = [(str(n), v) for n, v in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat.update(_flat(item, f"{prefix}.{key}" if prefix else key))
    return flat


def _say(value: Any) -> str:
    return "not set" if value is None else str(value)


def _noise(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    lines = []
    for key in sorted(a.keys() & b.keys()):
        before, after = a[key], b[key]
        percent = key != "load_1m" and isinstance(before, int | float) and isinstance(after, int | float)
        if percent and abs(after - before) > _NOISE_POINTS:
            lines.append(f"noise.{key}: {before:g} % → {after:g} %")
    return lines
