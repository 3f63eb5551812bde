"""Prefill and decode on separate GPUs: how many of each balance, and what the cache transfer costs."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.plan import kv
from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.serving.model import Setting, Speed
from aisp_mcp.records import Record


class Disaggregation(Record):
    """Ratio of replicas at which neither side waits, with the transfer between them."""

    prefill_replicas_per_decode: float
    transfer_bytes: int = Field(description="Cache of one prompt.")
    transfer_s: float
    transfer_share_of_ttft: float


def split(arch: Architecture, setting: Setting, speed: Speed, network_bytes_s: float) -> Disaggregation:
    """A decode replica finishes batch / (output x tpot) requests a second; prefill takes ttft of each."""
    requests = speed.batch / (setting.output * speed.tpot_excl_first_s)
    size = kv.sequence_bytes(arch, setting.prompt, setting.kv_dtype)
    seconds = size / network_bytes_s
    return Disaggregation(
        prefill_replicas_per_decode=requests * speed.ttft_s,
        transfer_bytes=size,
        transfer_s=seconds,
        transfer_share_of_ttft=seconds / speed.ttft_s,
    )
