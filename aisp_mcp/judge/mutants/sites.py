"""The torch calls of a program, and a run of it in which one of them is replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Site:
    """One torch call of a run: its number, counted from 0, and its function's name."""

    number: int
    name: str


@dataclass(frozen=True)
class TorchCall:
    """A call as a change sees it. result: the function's own result for these arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def result(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def with_first(self, value: Any) -> Any:
        """The result for another first argument."""
        if self.args:
            return self.function(value, *self.args[1:], **self.kwargs)
        return self.function(**{**self.kwargs, "input": value})

    @property
    def first(self) -> Any:
        """The first argument."""
        return self.args[0] if self.args else self.kwargs.get("input")

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def visit(run: Callable[[], Any], see: Callable[[int, TorchCall], Any]) -> Any:
    """Run with every torch call replaced by what `see` returns for its number and itself."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Visiting(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        count = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            number, self.count = self.count, self.count + 1
            return see(number, TorchCall(_name(func), func, tuple(args), kwargs or {}))

    with torch.no_grad() if not torch.is_grad_enabled() else torch.enable_grad(), Visiting():
        return run()


def _name(function: Any) -> str:
    """The name without the underscores of an operator or an in-place variant: `add` for `__iadd__` and `add_`."""
    name = str(getattr(function, "__name__", "")).strip("_")
    return {
        "iadd": "add",
        "radd": "add",
        "isub": "sub",
        "imul": "mul",
        "rmul": "mul",
        "itruediv": "div",
        "truediv": "div",
        "rtruediv": "rdiv",
        "rsub": "rsub",
        "rmatmul": "matmul",
    }.get(name, name)
