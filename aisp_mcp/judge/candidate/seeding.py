"""Secret seeds instead of those that a problem's recipe sets itself.

A recipe may be drawn for every timed call, so its cost is part of every round: classes are made once, and attributes
are replaced by hand.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

_BITS = 62
_FACTORIES = ("randn", "rand", "randn_like", "rand_like")  # of torch, that a module may call in forward()
_real: dict[str, Any] = {}  # numpy's own function, which is replaced while a recipe draws


class Draws:
    """Record of the time during which seeds are replaced. seeded: the code tried to set its own."""

    def __init__(self, seed: int) -> None:
        self.random, self.seeded = random.Random(seed), False

    def bits(self, count: int = _BITS) -> int:
        """The next secret seed."""
        return self.random.getrandbits(count)

    def ignore(self, *_: Any, **__: Any) -> Any:
        """Replacement for a function that sets a seed."""
        import torch

        self.seeded = True
        return torch.default_generator

    def default_rng(self, seed: Any = None) -> Any:
        """Replacement for numpy's generator."""
        self.seeded |= seed is not None
        return _real["default_rng"](self.bits())


class _Current:
    """The record that generators made by recipes write to."""

    draws = Draws(0)


@contextmanager
def seeded(seed: int, device: str = "cpu", fill: int = 0) -> Iterator[Draws]:
    """Draw from this seed, whatever seeds the code sets itself, and on the CPU if there is no GPU. fill: content of
    memory that the code leaves unwritten: the same draw must give the same values again.
    """
    import torch

    draws = _Current.draws = Draws(seed)
    before = random.getstate()
    with torch.random.fork_rng(None if device == "cuda" else []), ExitStack() as stack:
        stack.enter_context(_filled()(fill))
        if device == "cpu":
            stack.enter_context(_on_cpu()())
        # not torch.manual_seed: without a GPU, it records the seed and the whole stack every time, for a later one
        torch.default_generator.manual_seed(draws.bits())
        if device == "cuda":
            torch.cuda.manual_seed_all(draws.bits())
        random.seed(draws.bits())
        try:
            with replaced(_replacements(draws)):
                yield draws
        finally:
            random.setstate(before)


@contextmanager
def noted() -> Iterator[list[Any]]:
    """Collect the random tensors that torch's factories make meanwhile, in their order."""
    import torch

    tensors: list[Any] = []

    def note(real: Any) -> Any:
        def factory(*args: Any, **kwargs: Any) -> Any:
            tensors.append(real(*args, **kwargs))
            return tensors[-1].clone()  # the module may write to it

        return factory

    with replaced([(torch, name, note(getattr(torch, name))) for name in _FACTORIES]):
        yield tensors


@contextmanager
def handed_out(tensors: Sequence[Any]) -> Iterator[None]:
    """Let torch's random factories return these tensors, one after the other, to all who name no generator.

    They raise ValueError for a tensor of another shape, and for one too many.
    """
    import torch

    left = iter(tensors)

    def factory(name: str, real: Any) -> Any:
        def take(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("generator") is not None:
                return real(*args, **kwargs)
            shape, tensor = _shape(name, args, kwargs), next(left, None)
            if tensor is None or tuple(tensor.shape) != shape:
                drawn = f"{len(tensors)} of {', '.join(str(tuple(each.shape)) for each in tensors)}"
                raise ValueError(
                    f"torch.{name} of {shape} in forward(): the problem's forward() draws {drawn}, which are inputs of "
                    "the call, and a candidate gets them where it draws tensors of these shapes in this order."
                )
            return tensor

        take.__dict__["_torchdynamo_disable"] = True  # compiled code calls it instead of tracing which tensor is next
        return take

    with replaced([(torch, name, factory(name, getattr(torch, name))) for name in _FACTORIES]):
        yield


def _shape(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that a call of a random factory asks for."""
    if name.endswith("_like"):
        return tuple((args[0] if args else kwargs["input"]).shape)
    sizes = kwargs.get("size", args)
    return tuple(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)


@contextmanager
def replaced(new: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give attributes other values, by owner and name, for a while."""
    old = [(owner, name, getattr(owner, name)) for owner, name, _ in new]
    try:
        for owner, name, value in new:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in old:
            setattr(owner, name, value)


def _replacements(draws: Draws) -> list[tuple[Any, str, Any]]:
    """Attributes to replace while a recipe runs; numpy is seeded if it is installed."""
    import torch

    replacements: list[tuple[Any, str, Any]] = [(torch, "Generator", _generator()), (random, "seed", draws.ignore)]
    owners = (torch, torch.random, torch.cuda)
    replacements += [(owner, "manual_seed", draws.ignore) for owner in owners]
    replacements.append((torch.cuda, "manual_seed_all", draws.ignore))
    if numpy := _numpy():
        numpy.random.seed(draws.bits(32))
        replacements += [(numpy.random, "seed", draws.ignore), (numpy.random, "default_rng", draws.default_rng)]
    return replacements


@lru_cache(maxsize=1)
def _numpy() -> Any:
    if importlib.util.find_spec("numpy") is None:
        return None
    import numpy

    _real["default_rng"] = numpy.random.default_rng
    return numpy


@lru_cache(maxsize=1)
def _generator() -> Any:
    """A generator that takes no seed, on the CPU if there is no GPU."""
    import torch

    class Generator(torch.Generator):  # type: ignore[misc,unused-ignore]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, device=device if torch.cuda.is_available() else "cpu")

        def manual_seed(self, _: int) -> Any:
            _Current.draws.seeded = True
            return super().manual_seed(_Current.draws.bits())

    return Generator


@lru_cache(maxsize=1)
def _filled() -> Any:
    """A mode that fills memory which a recipe does not initialise with a number."""
    import torch
    from torch.overrides import TorchFunctionMode

    uninitialised = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)

    class Filled(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
        def __init__(self, fill: int) -> None:
            super().__init__()
            self.fill = fill

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result.fill_(self.fill) if func in uninitialised else result

    return Filled


@lru_cache(maxsize=1)
def _on_cpu() -> Any:
    """A mode in which recipes that name a GPU work when the harness measures on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            if func is torch.Tensor.cuda:
                return args[0]
            if func is torch.Tensor.to:
                args = tuple("cpu" if isinstance(arg, str) and arg.startswith("cuda") else arg for arg in args)
            return func(*args, **kwargs)

    return OnCpu
