"""Connections between the parts of a machine."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.system.records.device import Hca, Nic, NumaNode, Problem


class GpuPlace(Record):
    """Location of a GPU. NVLink rates are bytes/s per direction over all active links."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    numa_node: int | None = None
    cpus: str | None = Field(default=None, description="Processors of that node.")
    pcie: str | None = Field(
        default=None, description="The link as trained, and the best possible: `gen5 x16 of gen5 x16`."
    )
    pcie_per_direction_bytes_s: float | None = Field(default=None, description="Theoretical rate of the trained link.")
    nvlinks: int | None = Field(default=None, description="Active NVLink connections; None where not reported.")
    nvlink_version: str | None = None
    nvlink_per_direction_bytes_s: float | None = None


class GpuPair(Record):
    """Two GPUs: their common ancestor on PCIe, direct or switched NVLinks, and the access that the driver allows."""

    a: int
    b: int
    ancestor: str | None = Field(default=None, description="internal, PIX, PXB, PHB, NODE or SYS")
    nvlink: bool | None = Field(default=None, description="Peer access over NVLink, as reported by the driver.")
    read: str | None = Field(default=None, description="Peer reads: ok, or the driver's reason.")
    write: str | None = None
    atomics: str | None = None


class Topology(Record):
    """GPUs, links, NUMA nodes and adapters with their nearest GPUs."""

    gpus: list[GpuPlace]
    pairs: list[GpuPair]
    numa: list[NumaNode]
    nics: list[Nic]
    hcas: list[Hca]
    nearest_gpus: dict[str, list[int]] = Field(description="Adapter to the GPUs on its NUMA node.")
    problem: Problem | None = None
