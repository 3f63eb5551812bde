"""What a hardware probe measured: rates with an interval, and the references they are placed against."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.model.base import Record


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
    """One measured rate and its references: the datasheet, the best seen on this device, the theory of the link."""

    name: str
    unit: str
    rate: Rate
    spec: Against | None = None
    best: Against | None = Field(default=None, description="Best seen earlier on this very device.")
    link: Against | None = Field(default=None, description="Theoretical rate of the trained link.")
    note: str | None = None


class Probe(Record):
    """One probe's answer."""

    device: str = Field(description="GPU name, or cpu.")
    device_id: str = Field(description="GPU UUID, or cpu: the key under which the best rates are kept.")
    results: list[Placed]
    notes: list[str] = Field(default_factory=list, description="What was not measured and why; what to know.")
    conditions: dict[str, object] = Field(default_factory=dict, description="Sizes, library paths, clocks seen.")
    seconds: float
