"""Theoretical occupancy: how many warps of a launch fit on one multiprocessor."""

from __future__ import annotations

_WARP = 32
_REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of this, since compute capability 3.0
_SHARED_RESERVED = 1024  # bytes reserved by the driver per block, since compute capability 8.0
_SHARED_UNIT = 128


def theoretical(
    threads: int,
    registers: int,
    shared: int,
    warps: int | None,
    blocks: int | None,
    file: int | None,
    memory: int | None,
) -> float | None:
    """Share of the warp slots, 0 to 1; None if the device's limits are unknown.

    threads, shared (bytes): per block; registers: per thread; warps, blocks, file (registers), memory (bytes): limits
    of one multiprocessor. Clusters and the split between L1 and shared memory are not modelled.
    """
    if not (warps and blocks and file and memory and threads):
        return None
    per_block = -(-threads // _WARP)
    per_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    bytes_used = -(-(shared + _SHARED_RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
    fits = min(
        blocks,
        warps // per_block,
        (file // per_warp) // per_block if per_warp else blocks,
        memory // bytes_used,
    )
    return fits * per_block / warps
