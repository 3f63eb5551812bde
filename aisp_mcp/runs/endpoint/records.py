"""Measurements of a server, and the verdict on two."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.records import Record


class Metric(Record):
    """value: mean over repeats of each repeat's own value; interval: 95 %, by t over repeats, empty for one repeat."""

    name: str = Field(description="ttft, tpot and latency are medians over requests; p95 below 100 requests, else p99.")
    unit: str
    value: float
    interval: list[float]
    repeats: list[float]


class SelfTest(Record):
    """The client's reading of a stub with known latencies, in milliseconds."""

    client: str
    ttft_ms: list[float] = Field(description="Known, measured.")
    tpot_ms: list[float]
    sentence: str


class Load(Record):
    """The loads of every repeat. concurrency: the first load's; None if its requests arrive at a rate."""

    concurrency: int | None
    loads: list[str] = Field(default_factory=list)
    requests: int
    output_tokens: int
    prompt_words: int | None
    repeats: int


class ServerFigures(Record):
    """One server under one load. failed: requests that did not succeed, over all repeats."""

    url: str
    model: str
    load: str = ""
    metrics: list[Metric]
    output_tokens: float = Field(description="Mean tokens of an answer, as the server counted them.")
    output_characters: float | None = Field(
        default=None, description="Of its text, without white space, if the client keeps it."
    )
    requests: int
    failed: int


class MetricRatio(Record):
    """A metric under one load: above 1 the candidate is better, in times and in rates. verdict: of this row alone;
    faster means better, for rates as well.
    """

    metric: str = Field(description="throughput, ttft, tpot, latency, goodput; failed, only if the servers differ.")
    load: str = ""
    ratio: float | None
    interval: Interval | None
    noise_floor: float | None
    verdict: Verdict
    sentence: str


class ServerVerdict(Record):
    """The candidate judged on all metrics under all loads."""

    verdict: str = Field(description="better, worse, trade-off, same, inconclusive; incorrect: other work was done.")
    passed: bool | None = Field(description="null: inconclusive.")
    goal: str
    limit: float = Field(default=0.05, description="Share that the goal may cost in any other metric.")
    sentence: str
    metrics: list[MetricRatio]
    flags: list[Flag]


class Knee(Record):
    """The bend of a server's load curve. interval: 95 %, by t over repeats; empty for one repeat."""

    url: str
    concurrency: float = Field(description="The highest rate of answers times the latency under the lowest load.")
    interval: list[float]
    requests_per_s: float = Field(description="The highest rate of answers.")
    sentence: str


class ServeBench(Record):
    """Figures of one or two servers and, for two, the verdict."""

    sentence: str
    servers: list[ServerFigures] = Field(description="For each load the baseline, then the candidate.")
    pair: ServerVerdict | None
    knees: list[Knee] = Field(default_factory=list, description="Of each server, from two loads of requests at once.")
    self_test: SelfTest
    load: Load
    definitions: str
    notes: list[str]
