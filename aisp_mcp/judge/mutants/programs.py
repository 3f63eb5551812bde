"""Changes to a whole program: to its inputs, and to its output.

A program takes inputs and static tensors by name. A change makes another program from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aisp_mcp.judge.mutants.operations import NARROWER

Program = Callable[..., Any]
IGNORED = "ignore a parameter"
PART = 8  # 1 / the part of an output that is left out


def mutants(run: Program, params: Sequence[str], inputs: Sequence[str]) -> Iterator[tuple[str, str, Program]]:
    """(kind, description, program). params, inputs: names of the floating-point ones."""
    yield "reuse an answer", "the last answer again in every second call", _again(run)
    yield "constant answer", "zeros", _answering(run, lambda out: out.zero_())
    yield "skip a block", "the last eighth of each output is a copy of the first", _answering(run, _copied_end)
    yield "skip a block", "the last eighth of each output is zero", _answering(run, _zero_end)
    yield "sample 1 of 2", "every second row of each output is a copy of the one before", _answering(run, _paired)
    yield "lower precision", "all inputs rounded to the next narrower type", _given(run, [*params, *inputs], _narrow)
    yield "lower precision", "outputs rounded to the next narrower type", _answering(run, _rounded)
    for name in params:
        for words, value in (("ones", 1.0), ("zeros", 0.0)):
            yield IGNORED, f"{name} taken as {words}", _given(run, [name], _full(value))
    for name in inputs:
        yield "ignore an input", f"{name} taken as its mean", _given(run, [name], _mean)


def _given(run: Program, names: Sequence[str], change: Callable[[Any], Any]) -> Program:
    """The program on other values of some tensors."""

    def altered(**tensors: Any) -> Any:
        return run(**{name: change(value) if name in names else value for name, value in tensors.items()})

    return altered


def _answering(run: Program, change: Callable[[Any], Any]) -> Program:
    """The program with each output changed."""
    return lambda **tensors: _mapped(run(**tensors), change)


def _mapped(output: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(output, Mapping):
        return {name: _mapped(value, change) for name, value in output.items()}
    if isinstance(output, tuple | list):
        return [_mapped(value, change) for value in output]
    return change(output.clone())


def _again(run: Program) -> Program:
    results: list[Any] = []

    def altered(**tensors: Any) -> Any:
        if results:
            return results.pop()
        results.append(_mapped(run(**tensors), lambda out: out))
        return _mapped(results[0], lambda out: out)

    return altered


def _copied_end(out: Any) -> Any:
    flat = out.reshape(-1)
    part = len(flat) // PART
    if part:
        flat[-part:] = flat[:part].clone()
    return flat.view(out.shape)


def _zero_end(out: Any) -> Any:
    flat = out.reshape(-1)
    flat[len(flat) - len(flat) // PART :] = 0
    return flat.view(out.shape)


def _paired(out: Any) -> Any:
    if out.ndim and len(out) > 1:
        out[1::2] = out[: len(out) - 1 : 2].clone() if len(out) % 2 else out[::2].clone()
    return out


def _rounded(out: Any) -> Any:
    return _narrow(out) if out.is_floating_point() else out


def _narrow(value: Any) -> Any:
    import torch

    name = NARROWER.get(str(value.dtype).removeprefix("torch."))
    return value.to(getattr(torch, name)).to(value.dtype) if name else value


def _full(number: float) -> Callable[[Any], Any]:
    return lambda value: value.new_full(value.shape, number)


def _mean(value: Any) -> Any:
    return value.mean().expand(value.shape).contiguous() if value.numel() else value
