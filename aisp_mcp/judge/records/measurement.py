"""Measured values of a baseline or a candidate."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from aisp_mcp.judge.records import renamed
from aisp_mcp.records import Record

# Times the ratio: the worker's clock is also reported if it shows more. Chosen: this changes the sentence alone.
NOTABLY = 1.02
BOUNDING = ("parent", "lower_bound")  # clocks that may count too much but never too little


class Interval(Record):
    """A confidence interval."""

    low: float
    high: float
    level: float = 0.95


class Memory(Record):
    """Bytes that timed rounds added at their worst. Host figures come from the kernel, not from the code under test."""

    host_peak_rss: int | None = None
    device_peak_allocated: int | None = Field(default=None, description="As reported by the program's own allocator.")
    device_peak_reserved: int | None = None
    device_used: int | None = Field(default=None, description="As NVML reports for the process, from outside.")


class Metric(Record):
    """The deciding value of a goal other than time per call: the median over processes or over an engine's traces."""

    name: str
    unit: str
    value: float


class Percentiles(Record):
    """Percentiles of a latency, in seconds; p99 only with at least 100 values."""

    p50_s: float
    p95_s: float
    p99_s: float | None = None


class Serving(Record):
    """Requests that a baseline or candidate engine served in all its traces, on the parent's clock."""

    requests: int
    ttft: Percentiles | None = Field(description="Arrival to first token.")
    tpot: Percentiles | None = Field(default=None, description="Mean time per further token of a request.")
    itl: Percentiles | None = Field(default=None, description="Gaps between two tokens of a request.")
    e2e: Percentiles | None = Field(description="Arrival to last token.")
    tokens_per_s: float
    goodput_tokens_per_s: float = Field(description="Tokens of requests that met the service level, per second.")
    slo_met: float = Field(description="Share of the requests that met the service level.")
    look_s: float = Field(description="95th percentile of the pauses between polls of the ring, worst trace.")


class Figures(Record):
    """A baseline or candidate over all its processes. Times are seconds per call; p99 only with at least 100 calls."""

    processes: int
    rounds: int
    calls: int
    time_s: float = Field(description="Median of the per-process times, on the clock that the verdict uses.")
    p50_s: float
    p95_s: float
    p99_s: float | None = None
    parent_time_s: float = Field(description="The same by the trusted parent's clock alone.")
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    items_per_s: float | None = None
    unit: str | None = Field(default=None, description="Name of the items, such as tokens.")
    memory: Memory = Field(default_factory=Memory)
    metric: Metric | None = Field(default=None, description="Of the goal, if it is not time per call.")
    prepare_s: float | None = Field(default=None, description="CPU seconds of start, import and prepare.")
    serving: Serving | None = Field(default=None, description="Of a serving benchmark: latencies and goodput.")


class Clocks(Record):
    """Two clocks that bound each other."""

    used: str = Field(
        description="worker or worker_mean (median or mean of calls: precise, believed only within delta), parent, "
        "with_host (the parent's, of GPU rounds that include host time), or lower_bound (the parent's, where it proves "
        "less than the others show: a flag says why)."
    )
    ratio_parent: float
    ratio_worker: float | None = Field(default=None, description="None: the workers gave no usable time.")
    ratio_lower_bound: float | None = Field(default=None, description="The ratio, if used is lower_bound.")
    disagreement: float | None = Field(default=None, description="Relative difference of both ratios.")
    delta: float = Field(description="The difference tolerated, never below the resolution of the parent's clock.")

    def bound(self, ratio: float | None) -> bool:
        """Return True if the parent's clock proves only this ratio, and the worker's own shows notably more."""
        if ratio is None or self.used not in BOUNDING or not self.ratio_worker:
            return False
        return self.ratio_worker > NOTABLY * ratio

    @model_validator(mode="before")
    @classmethod
    def _read_former_names(cls, data: Any) -> Any:
        return renamed.with_new_names(data, renamed.CLOCK_FIELDS, {"used": renamed.CLOCKS})


class Verification(Record):
    """Comparison with the reference, and its result."""

    calls: int = Field(description="Calls of the candidate in timed rounds, and on a GPU in the parent's own.")
    checked: int = Field(description="How many of them were compared, every element of their outputs.")
    undetected_share: float = Field(description="Share of wrong calls that would have been missed with 0.1 % chance.")
    max_error_ratio: float | None = Field(default=None, description="Error against float64 over the baseline's own.")
    allowed_error_ratio: float | None = None
    oracle: str
    measures: dict[str, float] = Field(
        default_factory=dict, description="Other errors of compared calls, the worst of each: dB, shares, deviations."
    )
    failure: str | None = None
