"""The device that benchmarks use on this machine."""

from __future__ import annotations

import os

from aisp_mcp.system.gpu import nvml


def device() -> str:
    """cuda if NVML sees a GPU and CUDA_VISIBLE_DEVICES does not hide all of them, else cpu."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return "cuda" if nvml.gpu_uuids() and not hidden else "cpu"
