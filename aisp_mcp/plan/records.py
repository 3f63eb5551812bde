"""Records of the planners: bounds of arguments, the form of every answer, calibrated shares, rows of the data."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field

from aisp_mcp.records import Record

Result = TypeVar("Result", bound=Record)


class Band(Record):
    """The range that contained the true value in eight of ten held-out cases."""

    p10: float
    p90: float
    unit: str
    basis: str = Field(description="Data whose residuals give the width.")


class Source(Record):
    """One source of a number."""

    what: str
    as_of: str = Field(description="Date, ISO 8601.")


class Planned(Record, Generic[Result]):
    """A planner's answer. band is empty if the answer is exact arithmetic, which the assumptions then state."""

    answer: Result
    assumptions: list[str]
    band: dict[str, Band] = Field(description="Name of a figure of the answer to its p10-p90 range.")
    not_modelled: list[str]
    definitions: dict[str, str]
    check_here: str = Field(description="Command that measures it on this machine.")
    sources: list[Source]


class Item(Record):
    """One line of an itemised sum."""

    name: str
    bytes: int
    how: str


class GemmShares(Record):
    """time = overhead + (compute^sharpness + memory^sharpness)^(1/sharpness), each at its share of the datasheet."""

    peak: float
    bandwidth: float
    overhead_s: float
    sharpness: float


class StepShares(Record):
    """Training: products at `peak` of the datasheet, plus passes over stored activations and fp32 logits."""

    peak: float
    activation_passes: float
    loss_passes: float


class Ratio(Record):
    """Measured over predicted: tenth and ninetieth percentile on data that were not used for fitting."""

    p10: float
    p90: float
    basis: str


class Calibration(Record):
    """Valid only for the named architectures: for others, a planner gives no times."""

    architectures: list[str]
    gemm: GemmShares
    step: StepShares
    link_share: float = Field(description="Of the link's rate, as bus bandwidth of a 64 MiB all-reduce.")
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    collective_s: float = Field(description="Latency of a small all-reduce inside a node.")
    workspace_bytes: int
    bands: dict[str, Ratio]
    sources: list[Source]


class TrainingShares(Record):
    """Constants for every GPU of the table unless a row of `architectures` overrides them."""

    peak: dict[str, float] = Field(description="Type of the products to the reached share of its dense peak.")
    attention: float = Field(description="Share of the bf16 peak that attention reaches.")
    activation_passes: float
    loss_passes: float
    contention: float = Field(
        description="Slow-down by communication overlapped with compute, as a share of its own time."
    )
    bandwidth: float = Field(description="Share of memory bandwidth in an optimizer update.")
    link_share: float
    network_share: float
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    collective_s: float = Field(description="Latency of a small collective inside a node.")
    network_collective_s: float = Field(description="Additional time of a collective over several nodes.")
    workspace_bytes: int


class TrainingBand(Record):
    """Measured over predicted time and memory, and the rows that they come from."""

    architectures: list[str]
    dtypes: list[str]
    step: Ratio
    experts: Ratio | None = Field(default=None, description="Of models with routed experts, where it differs.")

    def of(self, experts: bool) -> Ratio:
        """The ratio for a model with or without routed experts."""
        return self.experts if experts and self.experts is not None else self.step


class TrainingCalibration(Record):
    """Shares and bands; a GPU and type without a band get no times."""

    shares: TrainingShares
    steps: list[TrainingBand]
    memory: Ratio
    sources: list[Source]


class MatmulShare(Record):
    """Best measured dense matrix product over the datasheet's peak, by dtype; not derived from serving results."""

    architecture: str
    sku: str | None = Field(default=None, description="Where a GPU differs from others of its architecture.")
    dtype: str
    share: float
    source: str
    checked: str


class EngineFactor(Record):
    """Fraction of the best matrix product that a serving engine sustains, fitted to published results of one
    architecture.
    """

    architecture: str
    dtypes: list[str]
    factor: float
    basis: str


class FirstToken(Record):
    """ttft = overhead_s + prefill x (1 + batched x (1 - 1 / concurrency)) + steps x decode step + wait for arrivals.

    A prompt waits for the step that runs, shares its prefill with prompts that came before it, and is streamed.
    """

    overhead_s: float = Field(description="HTTP, tokenisation, scheduling, streaming.")
    batched: float = Field(description="Prompts prefilled before or with it, where many are in flight.")
    steps: float = Field(description="Decode steps until a token is out: what is left of the running one, and its own.")


class HostCost(Record):
    """Time of the CPU that a step does not hide: of the step, and of each sequence in it."""

    step_s: float
    sequence_s: float


class ServingShares(Record):
    """Constants of the rate model; see docs/planners.md for how each was fitted."""

    default_matmul: dict[int, float] = Field(description="Bits, 16 or 8 and fewer, to the mean of the listed products.")
    default_factor: float = Field(description="Of an architecture without results: the mean of the others.")
    expert_loss: float = Field(description="Extra time of a step with routed experts: small products, uneven load.")
    bandwidth: float
    attention: float = Field(description="Of the bf16 peak, for attention.")
    link: float
    network: float = Field(description="Of the adapters between nodes.")
    expert_layer_s: float = Field(description="Dispatch and combine of one layer of experts over several GPUs.")
    pipeline_loss: float = Field(description="Extra time of a step with several stages.")
    tpot_headroom: float = Field(description="99th percentile of time per token over its mean.")
    arrival_share: dict[str, float] = Field(
        description="Scenario to the share of the rate that remains under random arrivals."
    )
    first_token: FirstToken
    host: HostCost
    chunk_tokens: int
    most_sequences: int
    matmul: list[MatmulShare]
    factors: list[EngineFactor]
    bands: dict[str, Ratio]
    sources: list[Source]


class Alias(Record):
    """Another name of a listed model. hub: the repository, where it is another checkpoint with the same layers."""

    model: str
    hub: str | None = None


class Price(Record):
    """One list price. as_of: the date of the provider's page; checked: the date on which that source was read."""

    sku: str
    provider: str
    kind: Literal["on-demand", "spot"]
    usd_per_gpu_hour: float
    as_of: datetime.date
    checked: datetime.date
    source: str


class WeightFormat(Record):
    """Storage and arithmetic of weights. needs: lowest compute capability with hardware for the product."""

    name: str
    bytes: float = Field(description="Per parameter, scales included.")
    compute: str
    needs: str
    vllm: str | None = Field(description="Value of --quantization, where the engine quantises or must be told.")
    vendor: Literal["nvidia", "amd"] | None = Field(default=None, description="None: of either vendor.")
    checkpoint: bool = Field(default=False, description="Needs weights quantised beforehand.")
    risk: str
    source: str
    checked: str
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")


class Needs(Record):
    """Requirements of a technique: compute capability and number of GPUs."""

    cc: str | None = None
    gpus: int = 1


class Technique(Record):
    """effect: published factor on the goal's figure, lowest to highest; below 1 is a cost."""

    name: str
    goals: list[str]
    workload: Literal["any", "training", "inference"]
    effect: tuple[float, float]
    effort_days: float
    needs: Needs
    conflicts: list[str]
    what: str
    source: str
    checked: str
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")
    target: str | None = Field(default=None, description="Benchmark pair of this product that measures it.")


class Engine(Record):
    """Flags, weight formats and overheads of a serving engine."""

    flags: list[str]
    flags_source: str
    checked: str
    utilization: float
    block_tokens: int
    overhead_bytes: int
    per_layer_s: float
    formats: list[WeightFormat]
    published: dict[str, list[str]] = Field(description="Model to the formats of its makers, best first.")


def _unsaid(schema: dict[str, Any]) -> None:
    for word in ("minimum", "exclusiveMinimum", "maximum"):
        schema.pop(word, None)


Tokens = Annotated[int, Field(ge=1, le=10_000_000, json_schema_extra=_unsaid)]
Count = Annotated[int, Field(ge=1, json_schema_extra=_unsaid)]
Size = Annotated[int, Field(ge=1, le=100_000_000, json_schema_extra=_unsaid)]
Gpus = Annotated[int, Field(ge=1, le=65_536, json_schema_extra=_unsaid)]
Rank = Annotated[int, Field(ge=1, le=4096, json_schema_extra=_unsaid)]
Billions = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, json_schema_extra=_unsaid)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra=_unsaid)]
