"""Results of a hardware probe: rates with an interval, and the references to compare them with."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class Rate(Record):
    """The median over rounds, with a distribution-free interval of the median (order statistics)."""

    median: float
    low: float
    high: float
    level: float = Field(description="Confidence level that the rounds allow; 0.95 needs six of them.")
    rounds: int


class Against(Record):
    """A reference value and the measured share of it."""

    value: float
    share: float
    source: str


class Placed(Record):
    """One measured rate and its references: the datasheet, the best seen on this device, the link's
    theoretical rate.
    """

    name: str
    unit: str
    rate: Rate
    spec: Against | None = None
    best: Against | None = Field(default=None, description="Best value stored for this device by `aisp bench peak`.")
    link: Against | None = Field(default=None, description="Theoretical rate of the trained link.")
    note: str | None = None


class Probe(Record):
    """One probe's answer."""

    device: str = Field(description="GPU name, or cpu.")
    device_id: str = Field(description="GPU UUID, or cpu: the key under which the best rates are stored.")
    results: list[Placed]
    notes: list[str] = Field(default_factory=list, description="What was not measured and why, and caveats.")
    conditions: dict[str, object] = Field(default_factory=dict, description="Sizes, library paths, clocks seen.")
    seconds: float


class RooflinePoint(Record):
    """One measured operation under the roof."""

    name: str
    intensity: float = Field(description="FLOP per byte that must move at least.")
    rate: Rate = Field(description="FLOP/s.")
    share_of_roof: float = Field(description="Of min(peak, intensity x bandwidth).")
    bound: str = Field(description="memory below the ridge, compute above it.")


class Roofline(Record):
    """Measured ceilings, ridge points, and operations of known intensity placed on them."""

    device: str
    device_id: str
    ceilings: list[Placed] = Field(description="FLOP/s per dtype.")
    bandwidth: Placed = Field(description="Bytes/s, the fastest of copy, read and triad.")
    ridge: dict[str, float] = Field(description="FLOP/byte per dtype.")
    points: list[RooflinePoint]
    points_dtype: str
    chart: str | None = Field(default=None, description="Path of the SVG.")
    png: str | None = Field(default=None, description="Path of the PNG, if requested.")
    notes: list[str] = Field(default_factory=list)
    seconds: float


class Level(Record):
    """One working set of the memory hierarchy."""

    bytes: int
    latency_ns: Rate | None = None
    bandwidth: Rate | None = Field(default=None, description="Bytes/s of a repeated read of the set.")


class Hierarchy(Record):
    """Latency and bandwidth over working sets, with the cache sizes that the system reports."""

    device: str
    device_id: str
    method: str
    levels: list[Level]
    stated_caches: dict[str, int] = Field(description="Level to bytes, as reported by the kernel or the driver.")
    notes: list[str] = Field(default_factory=list)
    seconds: float


class Collective(Record):
    """One collective at one size, bus bandwidth in bytes/s as nccl-tests defines it."""

    name: str
    bytes: int
    busbw: Rate


class Collectives(Record):
    """All collectives and sizes of one run."""

    backend: str = Field(description="nccl, gloo (CPU) or nccl-tests")
    ranks: int
    rows: list[Collective]
    link_bytes_s: float | None = Field(default=None, description="NVLink per direction of one GPU, where reported.")
    notes: list[str] = Field(default_factory=list)
    seconds: float
