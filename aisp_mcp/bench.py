"""All that an author of benchmarks imports.

`baseline_<name>.py` is the specification: one subclass of Benchmark. `optimized_<name>[_<variant>].py` is a candidate:
a function `run` and, if it transforms static parameters, a function `prepare(params, example)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

Size = Literal["small", "default", "large"]
Goal = Literal["speed", "memory", "throughput", "latency"]


@dataclass(frozen=True)
class Work:
    """What one call must do at least: floating-point operations, bytes moved, items finished (tokens, rows)."""

    flops: float = 0.0
    bytes: float = 0.0
    items: float = 0.0


@dataclass(frozen=True)
class Tolerance:
    """How far outputs may lie from the float64 reference.

    error_ratio: allowed error in multiples of the baseline's own error against float64 (self-calibrated; honest
    float32 variants measure up to 9.4, sums of 65,536 terms in another order 20, TF32 from 64 on). absolute: a floor
    below which differences never count, for outputs near zero. exact: bitwise equality (integers and booleans always
    are). nan: non-finite values are part of the contract and must stand in the same places. approximate: the contract
    allows an approximation up to this relative error against float64, instead of error_ratio. stochastic: the output is
    a random draw; `reference` then returns its expectation, and distribution, expectation and freshness of the draws
    are tested against the baseline's.
    """

    error_ratio: float = 24.0
    absolute: float = 0.0
    exact: bool = False
    nan: bool = False
    approximate: float | None = None
    stochastic: bool = False


@dataclass(frozen=True)
class Needs:
    """What the benchmark cannot do without. A lack is a skip that names it, never a silent fallback.

    gpus: number of CUDA devices. sm: least compute capability, 90 for 9.0. memory_gb: free device memory.
    packages: distributions that must be installed.
    """

    gpus: int = 0
    sm: int = 0
    memory_gb: float = 0.0
    packages: tuple[str, ...] = ()


class Rng(Protocol):
    """Random tensors on the benchmark's device; the seed stays with the referee.

    shape: sizes; dtype: a torch dtype name such as "float32" (the default) or "bfloat16".
    """

    device: str

    def randn(self, *shape: int, dtype: str = "float32") -> Any:
        """Standard normal values (zero mean: uniform [0, 1) would hide TF32)."""

    def rand(self, *shape: int, dtype: str = "float32") -> Any:
        """Uniform values in [-1, 1)."""

    def randint(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Integers in [low, high)."""

    def permutation(self, n: int) -> Any:
        """A random permutation of range(n), int64."""

    def bernoulli(self, p: float, *shape: int) -> Any:
        """Booleans that are true with probability p."""


class Benchmark:
    """The specification of one workload; `run` is the baseline.

    sizes: attribute values per size preset; the referee picks small on a CPU and default on a GPU.
    goal: the metric that decides. contract: set in_place to the names of inputs that run may change.
    """

    goal: ClassVar[Goal] = "speed"
    sizes: ClassVar[Mapping[Size, Mapping[str, Any]]] = {}
    tolerance: ClassVar[Tolerance] = Tolerance()
    needs: ClassVar[Needs] = Needs()
    in_place: ClassVar[tuple[str, ...]] = ()

    def params(self, rng: Rng) -> dict[str, Any]:
        """Static tensors such as weights, owned by the referee; `prepare(params, example)` may transform them."""
        return {}

    def inputs(self, rng: Rng) -> dict[str, Any]:
        """Tensors that are new for every timed call."""
        raise NotImplementedError

    def work(self) -> Work:
        """What one call must do; rates come from here, never from a claim."""
        return Work()

    def run(self, **tensors: Any) -> Any:
        """The baseline: inputs and params by name; returns one tensor, or a tuple, list or dict of tensors."""
        raise NotImplementedError

    def reference(self, **tensors: Any) -> Any:
        """A second method for the truth. Default: `run` on inputs widened to float64."""
        return self.run(**tensors)
