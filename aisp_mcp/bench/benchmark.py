"""The API for benchmark authors.

`baseline_<name>.py` is the specification: one subclass of Benchmark. `optimized_<name>[_<variant>].py` is a candidate:
a function `run` and, if it transforms static parameters, a function `prepare(params, example)`. A candidate for a
ServingBenchmark has a function `serve` instead of `run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

Size = Literal["small", "default", "large"]
Goal = Literal["speed", "memory", "throughput", "latency", "cold", "energy"]
Cold = Literal["first_call", "process"]
Caches = Literal["empty", "full"]
Cache = Literal["warm", "cold"]

RANDN_SCALE = (0.5, 2.0)  # range of the secret factor of randn's values
RANDN_SHIFT = 0.5  # largest secret mean of randn's values, in units of that factor
RAND_SCALE = (0.25, 1.0)  # range of the secret factor of rand's values


@dataclass(frozen=True)
class Work:
    """The minimum work of one call: floating-point operations, bytes moved, items finished. unit: the items' name in
    rates, such as "tokens", "samples" or "rows".
    """

    flops: float = 0.0
    bytes: float = 0.0
    items: float = 0.0
    unit: str = "items"


@dataclass(frozen=True)
class Tolerance:
    """Largest distance of outputs from the float64 reference.

    error_ratio: allowed error in multiples of the baseline's own error against float64 (self-calibrated; honest float32
    variants measure up to 9.4, sums of 65,536 terms in another order 20, TF32 at least 64). Complex outputs are
    compared by their components. absolute: a floor below which differences never count, for outputs near zero. exact:
    bitwise equality (always for integers and booleans, except those in `indices`). nan: non-finite values are part of
    the contract and must be in the same positions. approximate: the contract allows an approximation up to this
    relative error against float64, instead of error_ratio. stochastic: the output is a random draw; `reference` then
    returns its expectation, and distribution, expectation and independence of the draws are tested against the
    baseline's.

    indices: for outputs that hold positions, such as those of topk, sort and argmax, the input and the dimension that
    they point into: {"out.1": ("x", 1)}, or {"out": ("x", -1)} for a single output. Such an output is right if the
    values it points to are right and no position occurs twice: ties may be resolved in any order. Outputs are named
    "out", "out.0", "out.1" … or "out.KEY".

    per_step: names of outputs whose first dimension counts dependent steps, such as a loss trajectory. Each step is
    compared separately, in units of the baseline's errors up to that step, which grow with it.

    format: a low-precision format (see the presets below). The unit is then the error of the same computation in
    float64 with its operands rounded to the format, instead of the baseline's own error. quantised: the names of these
    operands; by default all matrices among the params and, for floating-point formats, among the inputs. Presets:
    Tolerance.fp8_e4m3, fp8_e5m2, int8_weight, int4_weight and fp4.
    """

    error_ratio: float = 24.0
    absolute: float = 0.0
    exact: bool = False
    nan: bool = False
    approximate: float | None = None
    stochastic: bool = False
    indices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    per_step: tuple[str, ...] = ()
    format: str = ""
    quantised: tuple[str, ...] = ()

    fp8_e4m3: ClassVar[Tolerance]
    fp8_e5m2: ClassVar[Tolerance]
    int8_weight: ClassVar[Tolerance]
    int4_weight: ClassVar[Tolerance]
    fp4: ClassVar[Tolerance]


FORMATS = ("fp8_e4m3", "fp8_e5m2", "int8_weight", "int4_weight", "fp4")
# The next coarser format has twice the error: e5m2 has one bit less than e4m3, int4 four less than int8.
FORMAT_RATIO = 1.5
for _name in FORMATS:
    setattr(Tolerance, _name, Tolerance(error_ratio=FORMAT_RATIO, format=_name))


@dataclass(frozen=True)
class Answers:
    """The rule for answers that are any Python values. check: (file, function) of a checker of one's own, which gets
    the arguments and an answer, and returns whether it is right. rtol, atol: largest distance of floats from the
    baseline's, as in numpy.allclose; without them, what another order of operations explains. refuses_nan: an answer
    with NaN is wrong where the baseline's has none, before the checker gets it.
    """

    check: tuple[str, str] | None = None
    rtol: float | None = None
    atol: float | None = None
    refuses_nan: bool = False


@dataclass(frozen=True)
class File:
    """An input that is a file: `run` gets its path, a str.

    content: bytes, or a tensor that provides them. name: of the file, in its own folder. cache: "warm", in the page
    cache when the round begins, or "cold", written to the disk and dropped from the page cache.
    """

    content: Any
    name: str = "data.bin"
    cache: Cache = "warm"


@dataclass(frozen=True)
class Folder:
    """An input that is a folder of files: `run` gets the folder's path, a str. files: content by name."""

    files: Mapping[str, Any]
    cache: Cache = "warm"


@dataclass(frozen=True)
class Host:
    """An input that is in host memory even on a GPU: copying it to the device is part of the call."""

    tensor: Any


@dataclass(frozen=True)
class Needs:
    """Requirements of the benchmark. If one is missing, the benchmark is skipped with its name, never run with a
    fallback.

    gpus: number of CUDA devices. sm: lowest compute capability, 90 for 9.0. memory_gb: free device memory. packages:
    distributions that must be installed. cores: processor cores. numa: memory nodes. cpu: features of the processor as
    the kernel names them, such as "avx512_bf16"; "amx" for its tiles. gpu: "fp8", "fp4" for matrix products of these
    types; "p2p", "nvlink" for memory access and links between the first two devices. tools: "nvcc", the CUDA compiler;
    "cufile", the library that reads from disks into device memory. device: "cpu" for a benchmark of the processor, its
    memory or its threads, which is measured there even if the machine has a GPU.
    """

    gpus: int = 0
    sm: int = 0
    memory_gb: float = 0.0
    packages: tuple[str, ...] = ()
    cores: int = 0
    numa: int = 0
    cpu: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    device: Literal["", "cpu"] = ""


class Rng(Protocol):
    """Random tensors on the benchmark's device; only the verifier knows the seed.

    shape: sizes; dtype: a torch dtype name such as "float32" (the default) or "bfloat16".

    Inputs of a call have secret statistics, so a kernel that assumes them is wrong. They are drawn anew for every call:
    each row of the last dimension has its own factor and mean, and the columns from a secret one on have another factor
    than those before. Most calls also have a texture, in which a few elements, columns or stretches of a row decide its
    sum; ranges whose bounds differ by less than a factor of two have none. The declared ranges bound every value. A
    specification that diverges on the default ranges, such as an iteration, narrows them. Fixed ranges (scale=1.0,
    shift=0.0) tell candidates that unit variance and zero mean are part of the contract, so they may rely on them.
    Static tensors (`params`) have the plain distribution, because candidates may examine them in `prepare`.
    """

    device: str

    def randn(
        self,
        *shape: int,
        dtype: str = "float32",
        scale: float | tuple[float, float] = RANDN_SCALE,
        shift: float = RANDN_SHIFT,
        nan: float = 0.0,
        inf: float = 0.0,
    ) -> Any:
        """Normal values times a secret factor in the range `scale`, plus a secret mean of up to `shift` factors. nan,
        inf: shares of the elements that are NaN or infinite, for tasks that must handle these.

        The mean is near zero because uniform [0, 1) would hide TF32. A complex dtype gives independent components.
        """

    def rand(self, *shape: int, dtype: str = "float32", scale: float | tuple[float, float] = RAND_SCALE) -> Any:
        """Uniform values in an interval inside [-1, 1), whose half-width is a secret factor in the range `scale`."""

    def randint(self, low: int, high: int, *shape: int, dtype: str = "int64", any_values: bool = False) -> Any:
        """Integers in [low, high). any_values: adversarial ones may be equal, sorted, skewed or tied."""

    def permutation(self, n: int) -> Any:
        """A random permutation of range(n), int64."""

    def bernoulli(self, p: float, *shape: int, any_values: bool = False) -> Any:
        """Booleans that are true with probability p. any_values: adversarial ones may be sorted or equal, all or in
        whole rows.
        """

    def seed(self) -> int:
        """A secret seed for a generator of one's own."""


class Benchmark:
    """The specification of one workload; `run` is the baseline.

    make, check: `file.py:function`, in the baseline's folder, of a generator of a call's arguments (instead of
    `inputs`; it gets a seed and the attribute `n`, or 64) and of a checker of answers. rtol, atol: for floats in
    answers. With any of the four, arguments and answers are any Python values, on a CPU: see docs/functions.md.
    answers: the rule that follows from them. sizes: attribute values per size preset; the harness picks small on a CPU
    and default on a GPU. goal: the metric that decides. cold, caches: for goal "cold", see docs/cold-start.md: time
    counts from loading the program, or from starting the process, until the first answer; compile caches are empty, or
    full with the results of an earlier process. in_place: names of inputs that run may change; the content that the
    baseline leaves there is also an output, unless it returns these inputs, or they are `scratch`. layout: "values"
    compares values, shape and dtype, and a candidate that returns other strides is timed with the copy into the
    baseline's; "any" times no copy, unless there are gaps or overlaps; "strict" requires the baseline's strides.
    shares_inputs: whether an output may be (part of) an input instead of separate memory; if the baseline's own outputs
    are, this is allowed without a declaration. threads: the number of cores that baseline and candidate each get; 0 for
    all measured cores. On a machine with fewer cores, the benchmark is skipped.
    """

    goal: ClassVar[Goal] = "speed"
    cold: ClassVar[Cold] = "first_call"
    caches: ClassVar[Caches] = "empty"
    sizes: ClassVar[Mapping[Size, Mapping[str, Any]]] = {}
    tolerance: ClassVar[Tolerance] = Tolerance()
    make: ClassVar[str | None] = None
    check: ClassVar[str | None] = None
    rtol: ClassVar[float | None] = None
    atol: ClassVar[float | None] = None
    answers: ClassVar[Answers | None] = None
    needs: ClassVar[Needs] = Needs()
    in_place: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[Literal["values", "any", "strict"]] = "values"
    shares_inputs: ClassVar[bool] = False
    threads: ClassVar[int] = 0

    def params(self, rng: Rng) -> dict[str, Any]:
        """Static tensors such as weights, owned by the harness; `prepare(params, example)` may transform them."""
        return {}

    def inputs(self, rng: Rng) -> dict[str, Any]:
        """Tensors that are new for every timed call; a File, Folder or Host may replace one."""
        raise NotImplementedError

    def work(self) -> Work:
        """Work of one call. Rates are computed from this, never from a candidate's figures."""
        return Work()

    def run(self, **tensors: Any) -> Any:
        """The baseline: inputs and params by name; returns one tensor, or a tuple, list or dict of tensors."""
        raise NotImplementedError

    def reference(self, **tensors: Any) -> Any:
        """A second way to compute the outputs. Default: `run` on inputs widened to float64.

        While it runs, every floating-point type that torch operations request is also widened to float64, and autocast
        is off, so the truth of a mixed-precision baseline contains no rounding. Code that bypasses torch operations (a
        Triton or C++ kernel, bit patterns by `view`) does not take float64: define reference() there, as the same
        formula in torch operations.
        """
        return self.run(**tensors)


class Arrival(NamedTuple):
    """One request of a trace. at: its time after the start. prompt: token ids. tokens: number of tokens to emit."""

    at: float
    prompt: Sequence[int]
    tokens: int


class Request(NamedTuple):
    """One request as an engine gets it. id: a secret number, new for each trace. tokens: number of tokens to emit."""

    id: int
    prompt: tuple[int, ...]
    tokens: int


class RequestFeed(Protocol):
    """Requests of a trace, each handed out when it is due by the parent's clock."""

    def poll(self) -> list[Request]:
        """Requests that arrived since the last call, without waiting."""

    def wait(self) -> list[Request]:
        """The same, but wait until there is one; empty only if no more will come."""

    @property
    def closed(self) -> bool:
        """Return True if no more will come than poll() returns now."""


class Emit(Protocol):
    """Deliver the next token of a request: the parent stamps it when it sees it."""

    def __call__(self, request: int, token: int) -> None: ...


@dataclass(frozen=True)
class LatencyGoal:
    """The latency to compare. metric: ttft (arrival to first token), tpot (mean time per further token of a request),
    itl (each gap between two tokens) or e2e (arrival to last token). percentile: over a trace, from 99 on only with 100
    values or more.
    """

    metric: Literal["ttft", "tpot", "itl", "e2e"] = "ttft"
    percentile: float = 95.0


@dataclass(frozen=True)
class Slo:
    """Service level that a request must meet to count as goodput. ttft: longest time to its first token; tpot: longest
    mean time per further token; None: any. Both in the benchmark's time unit.
    """

    ttft: float | None = None
    tpot: float | None = None


class ServingBenchmark(Benchmark):
    """The specification of an engine that serves requests as they arrive; `serve` is the baseline.

    One round is one whole trace. goal: "latency" compares the percentile of `latency`, "throughput" the tokens per
    second of requests that meet the `slo`. time_unit: with "alone", arrivals are in multiples of the baseline's time
    for a single request of mean length, and the slo in multiples of the TTFT and TPOT of such a request, all measured
    before the traces, so that the load is the same on any machine; with "seconds", they are absolute. max_regression:
    with goal "latency", the largest factor by which TTFT, TPOT and E2E, at the same percentile, may be worse than the
    baseline's; beyond it, the worst of them decides. Bounds of a trace: max_requests, max_prompt and max_tokens; tokens
    are numbers below `vocabulary`.
    """

    goal: ClassVar[Goal] = "latency"
    latency: ClassVar[LatencyGoal] = LatencyGoal()
    slo: ClassVar[Slo] = Slo()
    time_unit: ClassVar[Literal["alone", "seconds"]] = "alone"
    max_regression: ClassVar[float] = 2.0
    vocabulary: int = 256
    max_requests: int = 32
    max_prompt: int = 256
    max_tokens: int = 64

    def trace(self, rng: Rng) -> list[Arrival]:
        """Requests of a trace in the order of arrival; new and secret for every half of a palindrome."""
        raise NotImplementedError

    def logits(self, tokens: Any, **params: Any) -> Any:
        """The decoder as one formula: logits (batch, length, vocabulary) after each of `tokens` (batch, length).

        The reference runs it in float64 over prompts and emitted tokens. Each emitted token must be the best one there,
        or as good as the best. Shorter rows are padded at the end.
        """
        raise NotImplementedError

    def serve(self, requests: RequestFeed, emit: Emit, **params: Any) -> None:
        """The baseline engine: emit every token of every request, each request's in order, until the feed is closed."""
        raise NotImplementedError

    def inputs(self, rng: Rng) -> dict[str, Any]:
        """One prompt of the longest kind, for tools that call the decoder as a function."""
        return {"tokens": rng.randint(0, self.vocabulary, 1, self.max_prompt)}

    def run(self, **tensors: Any) -> Any:
        """The decoder as a function of `tokens`."""
        return self.logits(**tensors)


class DistributedBenchmark(Benchmark):
    """The specification of a workload of several processes; `run` is one rank's part of it.

    Every call is made on all ranks, each in a separate process with its own inputs and static tensors. The default
    group of torch.distributed exists before `prepare` and `run`: gloo on a CPU, NCCL on GPUs. A call takes as long as
    its last rank. ranks: number of processes, all on one machine; a size named `ranks` replaces it.
    """

    ranks: int = 2

    def rank_inputs(self, rng: Rng) -> list[dict[str, Any]]:
        """Tensors of every rank that are new for every timed call, by rank."""
        raise NotImplementedError

    def rank_params(self, rng: Rng) -> list[dict[str, Any]]:
        """Static tensors of every rank, by rank."""
        return [{} for _ in range(self.ranks)]

    def rank_reference(self, ranks: list[dict[str, Any]]) -> list[Any]:
        """The output of every rank from the inputs and static tensors of all, without a process group.

        Run in the tensors' own types, it gives the unit of the outputs' errors; in float64, the truth.
        """
        raise NotImplementedError

    def inputs(self, rng: Rng) -> dict[str, Any]:
        return _joined(self.rank_inputs(rng))

    def params(self, rng: Rng) -> dict[str, Any]:
        return _joined(self.rank_params(rng))

    def reference(self, **tensors: Any) -> dict[str, Any]:
        ranks: list[dict[str, Any]] = [{} for _ in range(self.ranks)]
        for name, tensor in tensors.items():
            plain, _, rank = name.rpartition("@")
            ranks[int(rank)][plain] = tensor
        outputs = [_tensors(output) for output in self.rank_reference(ranks)]
        return {f"rank{r:02d}.{n:03d}": tensor for r, output in enumerate(outputs) for n, tensor in enumerate(output)}


def _joined(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tensors of all ranks by "NAME@RANK"."""
    return {f"{name}@{rank}": tensor for rank, named in enumerate(ranks) for name, tensor in named.items()}


def _tensors(output: Any) -> list[Any]:
    """The tensors of one output, a dict's by sorted key."""
    if isinstance(output, Mapping):
        return [output[key] for key in sorted(output)]
    return list(output) if isinstance(output, tuple | list) else [output]
