"""Environment variables that are stored with a job.

A queued job may be started by a process other than the one that submitted it, and must then run as it was requested:
same interpreter path, devices, caches and settings. Those variables are stored with the job. Any other variable may
contain a secret; it passes from process to process in memory and is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from aisp_mcp.settings import PoolSettings, QueueSettings, Settings, ToolSettings

_NAMES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("PYTHONPATH", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_MODULE_LOADING"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NCCL_NVLS_ENABLE"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        *("CUDA_CACHE_PATH", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        *("TRACEPARENT", "TRACESTATE", "AISP_JOB_ASKABLE", "AISP_REACHED_AS", "SLURM_CONF"),
        *(
            item.metadata["env"]
            for table in (Settings, QueueSettings, PoolSettings, ToolSettings)
            for item in fields(table)
        ),
    )
)


def _listed(name: str) -> bool:
    return name in _NAMES or name.startswith("LC_")


def remembered(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be written to disk."""
    return {name: value for name, value in environ.items() if _listed(name)}


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """All other variables; a job has those of the process that starts its supervisor."""
    return {name: value for name, value in environ.items() if not _listed(name)}
