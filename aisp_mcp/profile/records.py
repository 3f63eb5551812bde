"""A profile: the observations of one profiler in one window, with its origin. Times are integer nanoseconds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.envelope import NextStep
from aisp_mcp.records import Record

GapCause = Literal["host", "host blocked", "kernel", "dependency", "other", "unknown"]
ProfileKind = Literal["nsys", "kineto", "rocprof", "xplane", "ncu", "memory", "stacks", "flight", "nccl", "tlparse"]
Severity = Literal["high", "medium", "low"]


class Source(Record):
    """Origin of a profile. sha256 is that of the file on disk, compressed or not."""

    path: str
    sha256: str
    bytes: int
    kind: ProfileKind
    tool: str
    version: str | None = None


class Window(Record):
    """The part of time that all figures are about, on the profiler's own clock."""

    start_ns: int
    end_ns: int
    definition: str

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class ProfiledDevice(Record):
    """A GPU as the profile describes it; None if the file does not."""

    index: int
    name: str | None = None
    sms: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: int | None = None
    compute_capability: str | None = None


class OpStat(Record):
    """All operations of one name. median_ns is the mean of the middle two if the count is even."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    min_ns: int
    max_ns: int
    share: float = Field(description="Of the summed time of its table, 0 to 1.")
    bytes: int | None = None


class KernelStat(OpStat):
    """One kernel name. Launch facts are those of its longest launch."""

    kind: str = Field(
        description="Such as gemm, attention, normalization or communication, by its name; other if the name does "
        "not say it, unknown if it may also communicate with other ranks.",
    )
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = Field(default=None, description="Per thread.")
    shared_bytes: int | None = Field(default=None, description="Per block, static and dynamic.")
    local_bytes: int | None = Field(default=None, description="Per thread; above 0: spills or indexed arrays.")
    occupancy: float | None = Field(default=None, description="Theoretical, 0 to 1.")


class CallStat(OpStat):
    """Host calls of one name (operator, module or Python frame), and the device work launched inside them."""

    operations: int = Field(default=0, description="Device operations launched inside.")
    gpu_ns: int = Field(default=0, description="Their time, callees included.")
    self_gpu_ns: int = Field(default=0, description="Of those that no callee launched.")
    kernel: str | None = Field(default=None, description="The one with most of self_gpu_ns.")


class Breakdown(Record):
    """Use of one device's window: exact unions of intervals. compute + unknown + exposed_* + idle = span.

    idle_host: the call that launches the next operation had not begun when the gap began, or had not returned.
    idle_kernel: it had begun, and the gap is at most 10 us. idle_dependency: it had returned, and its stream was
    waiting for an event. idle_other: it had returned, and the reason for the wait is unknown. idle_unknown: the file
    lacks the launch of the next operation, or operations that may have run then. idle_edge: before the first and after
    the last.
    """

    device: int
    span_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    unknown_ns: int = Field(
        default=0,
        description="In a trace of one rank of several: kernels whose names do not say whether they compute or "
        "communicate, while none ran that computes.",
    )
    exposed_communication_ns: int = Field(description="Communication while no other kernel ran.")
    exposed_memory_ns: int = Field(description="Copies while neither compute nor communication ran.")
    idle_host_ns: int
    idle_kernel_ns: int
    idle_dependency_ns: int = 0
    idle_other_ns: int
    idle_unknown_ns: int = 0
    idle_edge_ns: int

    @property
    def idle_ns(self) -> int:
        launched = self.idle_kernel_ns + self.idle_dependency_ns + self.idle_other_ns
        return self.idle_host_ns + launched + self.idle_unknown_ns + self.idle_edge_ns

    @property
    def busy_ns(self) -> int:
        return self.span_ns - self.idle_ns

    @property
    def overlap(self) -> float | None:
        """Share of communication that ran under compute; None without communication."""
        if not self.communication_ns:
            return None
        return 1 - self.exposed_communication_ns / self.communication_ns


class StreamStat(Record):
    """Work of one stream: the union of its operations."""

    device: int
    stream: int
    operations: int
    busy_ns: int


class Gap(Record):
    """A time in which a device was idle, between two operations."""

    device: int
    start_ns: int
    duration_ns: int
    cause: GapCause = Field(description="host blocked: a launch call of before the gap returned in it.")
    before: str = Field(description="The operation that ended the gap.")
    host: str | None = Field(default=None, description="The call the launching thread spent most of the gap in.")


class RangeStat(Record):
    """All ranges (NVTX, user annotations) of one name on the host, and the GPU work launched inside them."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    min_ns: int
    max_ns: int
    operations: int = Field(description="GPU operations launched inside.")
    projected_ns: int = Field(description="Sum of first start to last end of the GPU work of each instance.")
    gpu_ns: int = Field(description="Sum of the durations of that GPU work.")


class ReplayStat(Record):
    """GPU work replayed from CUDA graphs, by a named range around its capture. Ranges around that one count it too."""

    name: str
    operations: int
    gpu_ns: int
    self_gpu_ns: int = Field(description="Of operations that no inner range captured.")


class Step(Record):
    """One iteration, by the device: from the end of the work launched by the previous one to the end of its own."""

    name: str
    start_ns: int
    duration_ns: int
    busy_ns: int | None = Field(default=None, description="Union of GPU operations inside; None without a device.")
    idle_ns: int | None = None


class Collective(Record):
    """All calls of one collective on one group size and message size. busbw follows the convention of nccl-tests."""

    name: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int
    bytes: int | None = Field(default=None, description="Message size per call, the larger of input and output.")
    ranks: int | None = None
    dtype: str | None = None
    busbw_bytes_per_s: float | None = Field(
        default=None, description="At the median duration, which may include waiting."
    )


class HostShare(Record):
    """Work of the host while a device waited for it, in unions of intervals."""

    activity: str
    ns: int


class Timeline(Record):
    """Summary of a trace of host and device. All tables are complete and ordered by total time."""

    kernels: list[KernelStat] = Field(default_factory=list)
    memory: list[OpStat] = Field(default_factory=list, description="Copies by direction and kind, and memsets.")
    api: list[OpStat] = Field(default_factory=list)
    syncs: list[OpStat] = Field(default_factory=list)
    operators: list[CallStat] = Field(default_factory=list, description="Host operators, children included.")
    frames: list[CallStat] = Field(default_factory=list, description="Python frames and modules, callees included.")
    ranges: list[RangeStat] = Field(default_factory=list)
    replays: list[ReplayStat] = Field(default_factory=list)
    breakdown: list[Breakdown] = Field(default_factory=list)
    streams: list[StreamStat] = Field(default_factory=list)
    gaps: list[Gap] = Field(default_factory=list, description="The 50 longest.")
    steps: list[Step] = Field(default_factory=list)
    collectives: list[Collective] = Field(default_factory=list)
    host_in_gaps: list[HostShare] = Field(default_factory=list)
    host_gaps: int = Field(default=0, description="Gaps that the host caused, on all devices.")
    stream_waits: int = Field(default=0, description="Events and host functions that streams waited for.")


class RuleResult(Record):
    """Message of NVIDIA's own rule about a kernel, unchanged except for control characters."""

    name: str
    kind: str
    text: str
    speedup_kind: str | None = None
    speedup: float | None = Field(default=None, description="Percent, as estimated by the rule.")


class Limiter(Record):
    """The verdict of the decision tree: the bound, the values that show it, and the runner-up."""

    bound: str
    why: str
    evidence: dict[str, float]
    occupancy_limiter: str | None = None


class NcuKernel(Record):
    """One profiled launch. metrics are in base units: bytes, nanoseconds, hertz, percent, counts."""

    id: int
    name: str
    device: int | None = None
    compute_capability: str | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    duration_ns: float | None = None
    metrics: dict[str, float]
    units: dict[str, str] = Field(default_factory=dict)
    limiter: Limiter | None = None
    rules: list[RuleResult] = Field(default_factory=list)


class Allocation(Record):
    """Memory held by one stack at the peak."""

    bytes: int
    count: int
    stack: list[str]


class MemoryProfile(Record):
    """An allocator's history; reserved and active are those of its segments at the end."""

    device: int
    events: int
    duration_ns: int
    overflowed: bool = Field(default=False, description="Earlier events were lost, as the file says.")
    baseline_bytes: int = Field(description="Held before the first event; 0 if the history is complete.")
    peak_bytes: int
    peak_at_ns: int
    end_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int = Field(default=0, description="Most that was reserved at any time of the history.")
    active_bytes: int
    unused_at_peak: float = Field(
        description="Share of the memory reserved at the peak, and still at the end, that not even the peak used."
    )
    largest_free_bytes: int
    at_peak: list[Allocation] = Field(default_factory=list)
    timeline: list[tuple[int, int]] = Field(
        default_factory=list, description="(ns, bytes), at most 200 points, peaks preserved."
    )
    growth: list[int] = Field(default_factory=list, description="Bytes held by each step that later ones did not free.")
    steps_from: str | None = Field(default=None, description="What marks a step.")
    allocations: int = 0
    segment_allocations: int = Field(default=0, description="Calls that reached the driver.")
    segment_frees: int = 0
    segment_flushes: int | None = Field(default=None, description="Times that segments went back, many at once or one.")
    out_of_memory: int = 0


class CompileProfile(Record):
    """Work of torch.compile in a run."""

    frames: int = 0
    graphs: int = 0
    recompiles: int = 0
    compile_s: float = 0.0
    graph_breaks: list[OpCount] = Field(default_factory=list)
    recompile_reasons: list[OpCount] = Field(default_factory=list)


class OpCount(Record):
    """A reason and how often it was given."""

    what: str
    count: int


class Statement(Record):
    """A sentence about a profile. rows: sources of its numbers, as paths into the tables of the same profile."""

    text: str
    rows: list[str]


class Profile(Record):
    """One profile. Exactly the parts that its source provides are set."""

    source: Source
    window: Window | None = None
    devices: list[ProfiledDevice] = Field(default_factory=list)
    rank: int | None = None
    diagnostics: list[str] = Field(default_factory=list, description="What the profiler, or the reader, warns about.")
    faults: list[str] = Field(
        default_factory=list, description="What the recording itself has wrong; also in diagnostics."
    )
    missing: int = Field(default=0, description="Launches whose operations the file lacks.")
    timeline: Timeline | None = None
    kernels: list[NcuKernel] = Field(default_factory=list)
    memory: list[MemoryProfile] = Field(default_factory=list)
    compile: CompileProfile | None = None


class Insight(Record):
    """A named problem with its evidence. gain_ceiling: fixing only this cannot save a larger share of the window."""

    rule: str
    severity: Severity
    title: str
    evidence: list[dict[str, str | int | float]]
    gain_ceiling: float = Field(description="Share of the window (or of the kernel's time), 0 to 1.")
    basis: str = Field(description="How the ceiling was computed.")
    fix: str
    next: NextStep


class Abstention(Record):
    """A rule that could not run, and the data it lacked."""

    rule: str
    reason: str


class Insights(Record):
    """Findings, largest ceiling first; rules that ran and found nothing are counted."""

    found: list[Insight] = Field(default_factory=list)
    abstained: list[Abstention] = Field(default_factory=list)
    clean: int = 0
