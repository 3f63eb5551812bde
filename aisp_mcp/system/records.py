"""Records that describe this machine: its parts and their connections.

A value that could not be read is None, never a guess. No function here reads anything.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.envelope import NextStep
from aisp_mcp.records import Record

Severity = Literal["critical", "warning", "note"]


class Problem(Record):
    """The reason why something could not be read: what was sought, and a remedy."""

    code: str
    message: str
    hint: str | None = None


class Finding(Record):
    """A problem or notable fact of the machine. critical: results are wrong or nothing runs; warning: slower or noisier
    than necessary; note: good to know.
    """

    severity: Severity
    code: str
    message: str
    evidence: dict[str, Any] = Field(default_factory=dict)
    fix: str | None = Field(default=None, description="Command or change that removes it.")
    next: NextStep | None = None


class GpuMemory(Record):
    """Device memory in bytes as NVML reports it (less than the sold size: firmware and ECC reserve some)."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None


class GpuProcess(Record):
    """A process that uses memory on the GPU. name is None if the pid belongs to another pid namespace."""

    pid: int
    kind: Literal["compute", "graphics"]
    used_bytes: int | None = None
    name: str | None = None


class GpuActivity(Record):
    """Current work of the GPU. Utilisation is the share of the last sampling window in which a kernel ran."""

    gpu_percent: int | None = None
    memory_percent: int | None = None
    performance_state: str | None = None
    processes: list[GpuProcess] | None = None


class GpuClocks(Record):
    """Clocks in MHz, and the reasons why they are not higher (clock event reasons)."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_max_mhz: int | None = None
    sm_application_mhz: int | None = None
    event_reasons: list[str] | None = None


class GpuPower(Record):
    """Power in watts; the draw is NVML's average over about a second. Energy counts from the load of the driver."""

    draw_w: float | None = None
    instant_w: float | None = None
    limit_w: float | None = None
    default_limit_w: float | None = None
    min_limit_w: float | None = None
    max_limit_w: float | None = None
    energy_j: float | None = None


class GpuThermal(Record):
    """Temperatures in degrees Celsius."""

    gpu_c: int | None = None
    memory_c: int | None = None
    slowdown_c: int | None = None
    shutdown_c: int | None = None
    margin_c: int | None = Field(default=None, description="Distance to the temperature limit, where reported.")


class GpuHealth(Record):
    """ECC counters, retired pages (before Ampere) and remapped rows (from Ampere on)."""

    ecc_enabled: bool | None = None
    corrected_volatile: int | None = None
    uncorrected_volatile: int | None = None
    corrected_aggregate: int | None = None
    uncorrected_aggregate: int | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


class GpuPcie(Record):
    """The PCIe link as trained and as possible for this device in this slot."""

    bus_id: str | None = None
    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    replays: int | None = None


class MigDevice(Record):
    """One MIG instance."""

    index: int
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None


class GpuModes(Record):
    """Settings that affect the GPU's behaviour."""

    persistence: bool | None = None
    compute_mode: str | None = None
    virtualization: str | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    mig_devices: list[MigDevice] = Field(default_factory=list)


class Gpu(Record):
    """One GPU as NVML describes it. unread names the values that this driver or device does not report."""

    index: int
    name: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    memory: GpuMemory = Field(default_factory=GpuMemory)
    activity: GpuActivity = Field(default_factory=GpuActivity)
    clocks: GpuClocks = Field(default_factory=GpuClocks)
    power: GpuPower = Field(default_factory=GpuPower)
    thermal: GpuThermal = Field(default_factory=GpuThermal)
    health: GpuHealth = Field(default_factory=GpuHealth)
    pcie: GpuPcie = Field(default_factory=GpuPcie)
    modes: GpuModes = Field(default_factory=GpuModes)
    unread: list[str] = Field(default_factory=list)
    problem: Problem | None = Field(default=None, description="Why this GPU could not be read, if it could not.")


class GpuReading(Record):
    """All GPUs, or why there are none. With a problem, gpus contains those read before it occurred."""

    driver: str | None = None
    cuda_driver: str | None = Field(default=None, description="Newest CUDA version this driver supports.")
    gpus: list[Gpu] = Field(default_factory=list)
    problem: Problem | None = None


class Cache(Record):
    """One cache level as the kernel describes it. Size in bytes of one instance."""

    level: int
    kind: str
    size_bytes: int | None = None
    shared_by: int | None = Field(default=None, description="Logical processors that share one instance.")


class Cpu(Record):
    """The processors."""

    model: str | None = None
    architecture: str
    logical: int | None = None
    physical: int | None = None
    sockets: int | None = None
    usable: int | None = Field(default=None, description="Processors this process may run on (affinity).")
    smt: str = "unknown"
    isa: list[str] = Field(default_factory=list, description="Vector and matrix extensions.")
    caches: list[Cache] = Field(default_factory=list)
    governor: str = Field(default="unknown", description="Frequency governor; unknown where the kernel does not say.")
    frequency_mhz: float | None = None
    frequency_max_mhz: float | None = None


class HostMemory(Record):
    """Host memory in bytes, and the kernel's settings for it."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    shm_bytes: int | None = Field(default=None, description="Size of /dev/shm, which data loaders and NCCL need.")
    shm_free_bytes: int | None = None
    transparent_hugepages: str = "unknown"
    thp_defrag: str = "unknown"
    numa_balancing: str = "unknown"
    swappiness: int | None = None
    memlock_bytes: int | None = Field(default=None, description="Limit of locked memory; -1 is unlimited.")
    hugepages: int | None = None


class NumaNode(Record):
    """One NUMA node."""

    node: int
    cpus: str
    memory_bytes: int | None = None
    free_bytes: int | None = None
    distances: list[int] = Field(default_factory=list)


class ResourceLimits(Record):
    """Limits that the control group sets this process; None means no limit."""

    version: str = Field(description="1, 2, hybrid or none")
    cpus: float | None = Field(default=None, description="CPU quota over period.")
    memory_bytes: int | None = None
    pids: int | None = None
    cpuset: str | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None


class Surroundings(Record):
    """Container, virtual machine and kernel around this system."""

    container: str = Field(description="docker, podman, kubernetes, lxc, apptainer, a name, or none seen")
    hypervisor: str = Field(description="kvm, vmware, xen, microsoft, a name, unknown, or none seen")
    evidence: list[str] = Field(default_factory=list)
    kernel: str | None = None
    distribution: str | None = None
    user: Literal["root", "ordinary"] = "ordinary"


class Pressure(Record):
    """Stall shares over the last 10 s in percent (pressure stall information), and stolen CPU time."""

    cpu_some: float | None = None
    memory_some: float | None = None
    memory_full: float | None = None
    io_some: float | None = None
    io_full: float | None = None
    load_1m: float | None = None
    steal_percent: float | None = Field(default=None, description="Share of CPU time stolen since boot.")


class Disk(Record):
    """A mounted file system that matters: root, temporary folder, home of results, shared memory."""

    path: str
    filesystem: str | None = None
    device: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    kind: str | None = Field(default=None, description="nvme, ssd, hdd, virtio, network, memory or unknown")
    scheduler: str | None = None


class Nic(Record):
    """One network interface."""

    name: str
    kind: str
    state: str | None = None
    speed_mbps: int | None = None
    mtu: int | None = None
    driver: str | None = None
    numa_node: int | None = None
    pci: str | None = None


class Hca(Record):
    """One port of an InfiniBand or RoCE adapter."""

    device: str
    port: int
    link_layer: str | None = None
    state: str | None = None
    rate: str | None = None
    numa_node: int | None = None
    firmware: str | None = None


class Network(Record):
    """Interfaces and adapters; names only, no addresses."""

    nics: list[Nic] = Field(default_factory=list)
    hcas: list[Hca] = Field(default_factory=list)
    gpudirect_rdma: bool = Field(default=False, description="nvidia_peermem (or nv_peer_mem) is loaded.")


class Profilers(Record):
    """Profilers found without running them: path and version, or None."""

    nsys: str | None = None
    nsys_version: str | None = None
    ncu: str | None = None
    ncu_version: str | None = None
    perf: str | None = None
    py_spy: str | None = None


class Software(Record):
    """Versions from package metadata and files; nothing is imported or run."""

    python: str
    packages: dict[str, str | None] = Field(description="Distribution name to version; None is not installed.")
    cuda_driver: str | None = None
    driver: str | None = None
    torch_cuda: str | None = Field(default=None, description="CUDA version torch was built for; None is CPU or ROCm.")
    toolkit: str | None = Field(default=None, description="CUDA toolkit on PATH or in /usr/local.")
    libraries: dict[str, str | None] = Field(default_factory=dict, description="cuDNN, cuBLAS, NCCL: version found.")
    profilers: Profilers = Field(default_factory=Profilers)


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
