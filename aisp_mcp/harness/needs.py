"""What a benchmark needs and this machine lacks, in words. Runs in the verifier, where torch may be imported."""

from __future__ import annotations

from importlib import metadata

from aisp_mcp.bench import Needs


def missing_needs(needs: Needs) -> list[str]:
    """Each lack as a phrase; empty when the benchmark can run."""
    lacks = [f"package {name}" for name in needs.packages if not _installed(name)]
    if needs.gpus or needs.sm or needs.memory_gb:
        lacks += _missing_device(needs)
    return lacks


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _missing_device(needs: Needs) -> list[str]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < max(1, needs.gpus):
        return [f"{max(1, needs.gpus)} CUDA device(s), found {count}"]
    lacks = []
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor < needs.sm:
        lacks.append(f"compute capability {needs.sm / 10:.1f}, found {major}.{minor}")
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < needs.memory_gb:
        lacks.append(f"{needs.memory_gb:g} GiB of free device memory, found {free:.1f}")
    return lacks
