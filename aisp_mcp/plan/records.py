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


class Curve(Record):
    """Time of one collective over one kind of link; the comment of collectives.yaml has the formula and its units."""

    links: str
    collective: str
    start_us: float
    rank_us: float
    ramp_us: float
    ramp_mb: float
    share: dict[int, float] = Field(description="Ranks to the share of the link that a long message reaches.")

    def seconds(self, ranks: int, volume: float, link: float) -> float:
        """volume: bytes on the bus; link: bytes/s per GPU and direction."""
        ramp = self.ramp_us * volume / (volume + self.ramp_mb * 1e6)
        start = (self.start_us + self.rank_us * ranks + ramp) * 1e-6
        return start + volume / (link * self.share_of(ranks))

    def share_of(self, ranks: int) -> float:
        """The share of the next smaller listed number of ranks."""
        return self.share[max((n for n in self.share if n <= ranks), default=min(self.share))]


class Network(Record):
    """Between nodes: share of the adapters' rate, and the time that a collective takes more than inside a node.

    ramp_us, ramp_mb: as of a curve, of the all-reduce.
    """

    share: float
    start_us: float
    ramp_us: float
    ramp_mb: float


class CollectiveShares(Record):
    """Curves by link and collective, and the bands of their times."""

    curves: list[Curve]
    network: Network
    bands: dict[str, Ratio]
    sources: list[Source]


class Calibration(Record):
    """Valid only for the named architectures: for others, a planner gives no times."""

    architectures: list[str]
    gemm: GemmShares
    step: StepShares
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    workspace_bytes: int
    bands: dict[str, Ratio]
    sources: list[Source]


class TrainingShares(Record):
    """Shares of a stack, for every GPU of the table unless `sku` has a factor for it."""

    peak: dict[str, float] = Field(description="Type of the products to the reached share of its dense peak.")
    sku: dict[str, float] = Field(default={}, description="GPU to what its products reach, over the share above.")
    experts: dict[str, float] = Field(
        default={}, description="Type to the rate of grouped products, few rows for each expert, over that of others."
    )
    expert_layer_s: float = Field(
        default=0.0, description="Of a layer of experts and microbatch: routing, permuting and launches, both ways."
    )
    attention: float = Field(description="Share of the bf16 peak that attention reaches.")
    activation_passes: float = Field(description="Passes over stored activations, where kernels are fused.")
    cast_passes: float = Field(default=0.0, description="More of them in 8 and 4 bits without experts: scales, casts.")
    loss_passes: float
    exposed: float = Field(default=1.0, description="Share of the experts' dispatch that no product hides.")
    contention: float = Field(
        description="Slow-down by communication overlapped with compute, as a share of its own time."
    )
    bandwidth: float = Field(description="Share of memory bandwidth in an optimizer update and in unfused kernels.")
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    workspace_bytes: int


class TrainingBand(Record):
    """Measured over predicted time, and the rows that it comes from."""

    architectures: list[str]
    dtypes: list[str]
    step: Ratio
    experts: Ratio | None = Field(default=None, description="Of models with routed experts, where it differs.")

    def of(self, experts: bool) -> Ratio:
        """The ratio for a model with or without routed experts."""
        return self.experts if experts and self.experts is not None else self.step


class LogitBytes(Record):
    """Bytes per logit when its loss is differentiated: 16-bit logits, and copies in fp32 that are not fused away."""

    whole: int
    split: int = Field(description="Under tensor or pipeline parallelism.")


class Stack(Record):
    """A way to train that people run, with its own shares and bands."""

    name: str
    what: str
    splits: bool = Field(description="It has tensor, pipeline, context and expert parallelism.")
    logit_bytes: LogitBytes
    keeps_gathered: bool = Field(
        default=False,
        description="Gathered inputs are kept for the backward pass, and outputs of a pipeline until the step ends.",
    )
    unfused: bool = Field(default=False, description="PyTorch runs the operators of transformers one by one.")
    torch_weights: bool = Field(
        default=False, description="Mixed precision is PyTorch's: fp32 weights and gradients, cast where they are used."
    )
    shares: TrainingShares
    steps: list[TrainingBand]
    memory: Ratio
    split_memory: Ratio | None = Field(default=None, description="With tensor or pipeline parallelism, if it differs.")
    sources: list[Source]


class TrainingCalibration(Record):
    """Stacks; a GPU and type without a band get no times."""

    stacks: list[Stack]


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
    """ttft = overhead_s + (polling_s + steps x decode step + prefill x batched) o + prefill x (1 + waiting x c).

    c: sequences in flight; o: 1 - 1 / c. The wait of random arrivals comes on top. A prompt waits for the step that
    runs, shares its prefill with prompts that came before it, and is streamed; a benchmark that keeps c requests in
    flight starts with all of them at once.
    """

    overhead_s: float = Field(description="HTTP, tokenisation, scheduling, streaming.")
    polling_s: float = Field(default=0.0, description="A busy server takes longer, however short the prompt.")
    batched: float = Field(description="Prompts prefilled before or with it, where many are in flight.")
    waiting: float = Field(description="Prefills before it for each sequence in flight, on average over a benchmark.")
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
    narrow_attention: float = Field(description="Of that, with heads of up to 64.")
    link: float
    network: float = Field(description="Of the adapters between nodes.")
    between_s: float = Field(
        description="An engine's all-reduce over nodes beyond NCCL's own: ranks wait for each other."
    )
    expert_launch_s: float = Field(description="Kernels of one layer of experts, however few rows they have.")
    expert_layer_s: float = Field(description="Dispatch and combine of one layer of experts over several GPUs.")
    pipeline_loss: float = Field(description="Extra time of a step with several stages.")
    tpot_headroom: float = Field(description="99th percentile of time per token over its mean.")
    arrival_share: dict[str, float] = Field(
        description="Scenario to the share of the rate that remains under random arrivals."
    )
    first_token: dict[str, FirstToken] = Field(description="By engine.")
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
    context: int | None = Field(default=None, description="Longest sequence, where it differs.")


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
    """A serving engine: its commands and options, weight formats and overheads."""

    name: str
    start: str = Field(description="Words before the options; {model} is replaced.")
    measure: str = Field(description="Its benchmark of a running server.")
    options: dict[str, str] = Field(description="What is set to the option, with {} for the value.")
    source: str
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
UsdPerHour = Annotated[float, Field(gt=0, le=1e4, allow_inf_nan=False, json_schema_extra=_unsaid)]
