"""Device of a probe, as torch sees it."""

from __future__ import annotations

from typing import Any


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device ("cuda:0" or "cpu"). Name, UUID, sizes, and whether torch can use CUDA at all."""
    import torch

    if not torch.cuda.is_available():
        return {"cuda": False, "torch": torch.__version__, "threads": torch.get_num_threads()}
    index = torch.device(params["device"]).index or 0
    properties = torch.cuda.get_device_properties(index)
    return {
        "cuda": True,
        "torch": torch.__version__,
        "name": properties.name,
        "uuid": f"GPU-{getattr(properties, 'uuid', '')}",
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "shared_bytes_per_sm": getattr(properties, "shared_memory_per_multiprocessor", None),
        "count": torch.cuda.device_count(),
    }
