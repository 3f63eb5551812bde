"""All that an author of benchmarks imports.

`baseline_<name>.py` is the specification: one subclass of Benchmark. `optimized_<name>[_<variant>].py` is a candidate:
a function `run` and, if it transforms static parameters, a function `prepare(params, example)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

Size = Literal["small", "default", "large"]
Goal = Literal["speed", "memory", "throughput", "latency"]

RANDN_SCALE = (0.5, 2.0)  # range of the secret factor of randn's values
RANDN_SHIFT = 0.5  # largest secret mean of randn's values, in units of that factor
RAND_SCALE = (0.25, 1.0)  # range of the secret factor of rand's values


@dataclass(frozen=True)
class Work:
    """Least work of one call: floating-point operations, bytes moved, items finished (tokens, rows)."""

    flops: float = 0.0
    bytes: float = 0.0
    items: float = 0.0


@dataclass(frozen=True)
class Tolerance:
    """Largest distance of outputs from the float64 reference.

    error_ratio: allowed error in multiples of the baseline's own error against float64 (self-calibrated; honest
    float32 variants measure up to 9.4, sums of 65,536 terms in another order 20, TF32 from 64 on). Complex outputs are
    compared by their components. absolute: a floor below which differences never count, for outputs near zero. exact:
    bitwise equality (integers and booleans always are, but for those in `indices`). nan: non-finite values are part of
    the contract and must stand in the same places. approximate: the contract allows an approximation up to this
    relative error against float64, instead of error_ratio. stochastic: the output is a random draw; `reference` then
    returns its expectation, and distribution, expectation and independence of the draws are tested against the
    baseline's.

    indices: for outputs that hold positions, such as those of topk, sort and argmax, the input and the dimension that
    they point into: {"out.1": ("x", 1)}, or {"out": ("x", -1)} for a single output. Such an output is right when the
    values it points to are right, each position at most once: ties may be resolved in any order. Outputs are named
    "out", "out.0", "out.1" … or "out.KEY".
    """

    error_ratio: float = 24.0
    absolute: float = 0.0
    exact: bool = False
    nan: bool = False
    approximate: float | None = None
    stochastic: bool = False
    indices: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """Requirements of the benchmark. A missing one is a skip that names it, never a silent fallback.

    gpus: number of CUDA devices. sm: least compute capability, 90 for 9.0. memory_gb: free device memory.
    packages: distributions that must be installed.
    """

    gpus: int = 0
    sm: int = 0
    memory_gb: float = 0.0
    packages: tuple[str, ...] = ()


class Rng(Protocol):
    """Random tensors on the benchmark's device; the seed stays with the verifier.

    shape: sizes; dtype: a torch dtype name such as "float32" (the default) or "bfloat16".

    Inputs of a call have secret statistics, so that a kernel which assumes them is wrong. Every call draws them anew:
    each row of the last dimension has a factor and a mean of its own, and the columns behind a secret one have another
    factor than those before. The declared ranges bound all of it, and hold for every value: a specification that
    diverges on the default ranges, such as an iteration, narrows them. Fixing them (scale=1.0, shift=0.0) tells
    candidates that unit variance and zero mean belong to the contract: they may then rely on them.
    Static tensors (`params`) have the plain distribution: candidates may examine them in `prepare` anyway.
    """

    device: str

    def randn(
        self,
        *shape: int,
        dtype: str = "float32",
        scale: float | tuple[float, float] = RANDN_SCALE,
        shift: float = RANDN_SHIFT,
    ) -> Any:
        """Normal values times a secret factor in the range `scale`, plus a secret mean of up to `shift` factors.

        The mean is near zero because uniform [0, 1) would hide TF32. A complex dtype gives independent components.
        """

    def rand(self, *shape: int, dtype: str = "float32", scale: float | tuple[float, float] = RAND_SCALE) -> Any:
        """Uniform values in an interval inside [-1, 1), whose half width is a secret factor in the range `scale`."""

    def randint(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Integers in [low, high)."""

    def permutation(self, n: int) -> Any:
        """A random permutation of range(n), int64."""

    def bernoulli(self, p: float, *shape: int) -> Any:
        """Booleans that are true with probability p."""


class Benchmark:
    """The specification of one workload; `run` is the baseline.

    sizes: attribute values per size preset; the referee picks small on a CPU and default on a GPU.
    goal: the metric that decides. in_place: names of inputs that run may change. layout: "values" compares values,
    shape and dtype, and a candidate that returns other strides is timed with the copy into the baseline's; "strict"
    also demands the baseline's strides. shares_inputs: whether an output may be (part of) an input instead of memory
    of its own; where the baseline's own outputs are, it is allowed without being declared.
    """

    goal: ClassVar[Goal] = "speed"
    sizes: ClassVar[Mapping[Size, Mapping[str, Any]]] = {}
    tolerance: ClassVar[Tolerance] = Tolerance()
    needs: ClassVar[Needs] = Needs()
    in_place: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[Literal["values", "strict"]] = "values"
    shares_inputs: ClassVar[bool] = False

    def params(self, rng: Rng) -> dict[str, Any]:
        """Static tensors such as weights, owned by the referee; `prepare(params, example)` may transform them."""
        return {}

    def inputs(self, rng: Rng) -> dict[str, Any]:
        """Tensors that are new for every timed call."""
        raise NotImplementedError

    def work(self) -> Work:
        """Work of one call; rates come from here, never from a claim."""
        return Work()

    def run(self, **tensors: Any) -> Any:
        """The baseline: inputs and params by name; returns one tensor, or a tuple, list or dict of tensors."""
        raise NotImplementedError

    def reference(self, **tensors: Any) -> Any:
        """A second method for the truth. Default: `run` on inputs widened to float64.

        While it runs every floating-point type that torch operations ask for is widened to float64, too, and autocast
        is off: the truth of a mixed-precision baseline is not rounded on its way. Code that torch operations do not
        pass through (a Triton or C++ kernel, bit patterns by `view`) does not take float64: define reference() there,
        as the same formula in torch operations.
        """
        return self.run(**tensors)


class DistributedBenchmark(Benchmark):
    """The specification of a workload of several processes; `run` is one rank's part of it.

    Every call is made on all ranks, each in a process of its own, with that rank's inputs and static tensors. The
    default group of torch.distributed is there before `prepare` and `run`: gloo on a CPU, NCCL on GPUs. A call takes as
    long as its last rank. ranks: number of processes, all on one machine; a size named `ranks` replaces it.
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

        In the tensors' own types it gives the error that outputs are measured in, in float64 the truth.
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
        outputs = enumerate(self.rank_reference(ranks))
        return {f"rank{rank:02d}.{n:03d}": one for rank, output in outputs for n, one in enumerate(_tensors(output))}


def _joined(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tensors of all ranks by "NAME@RANK"."""
    return {f"{name}@{rank}": tensor for rank, named in enumerate(ranks) for name, tensor in named.items()}


def _tensors(output: Any) -> list[Any]:
    """The tensors of one output, a dict's by sorted key."""
    if isinstance(output, Mapping):
        return [output[key] for key in sorted(output)]
    return list(output) if isinstance(output, tuple | list) else [output]
