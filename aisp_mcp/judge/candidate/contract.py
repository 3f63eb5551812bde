"""Check everything an output promises except its values, in the worker that made it.

The worker is not trusted. If a candidate manipulates these checks, the verifier still compares its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.judge.protocol.layout import TensorSpec
from aisp_mcp.judge.protocol.module_loader import flatten

FIXED = "must not depend on the values of its inputs"


class ContractError(Exception):
    """The output's type, dtype, shape, device or strides are not what the specification promises."""


class SharedOutputError(Exception):
    """The output shares the memory of an input, and the contract does not allow it."""


@dataclass
class OutputRules:
    """Rules for the outputs of one worker. checked: check the contract. strict: including strides. off_limits: (begin,
    end) of memory that outputs must not use.
    """

    checked: bool = True
    strict: bool = False
    off_limits: list[tuple[int, int]] = field(default_factory=list)


def check_number(outputs: Sequence[Any], specs: Sequence[TensorSpec]) -> None:
    """Raise ContractError if a call returns another number of outputs than the specification's first call."""
    if len(outputs) != len(specs):
        raise ContractError(
            f"{len(outputs)} outputs instead of {len(specs)}; the number of values that a function returns {FIXED}"
        )


def check_contract(name: str, tensor: Any, spec: TensorSpec, device: Any, strict: bool) -> None:
    """Compare one output with its contract. strict: including strides. Raises ContractError."""
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    if kind != spec.kind:
        raise ContractError(f"{name} is a {kind} instead of a {spec.kind}")
    actual = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    if actual != (spec.dtype, spec.shape) or tensor.device != device:
        rule = f"; the shape of an output {FIXED}" if _has_other_sizes(actual[1], spec.shape) else ""
        raise ContractError(f"{name} is {actual} on {tensor.device}, not {spec.dtype, spec.shape}{rule}")
    if strict and not has_strides(tensor, spec):
        raise ContractError(f"{name} has strides {tuple(tensor.stride())}, the contract demands {spec.stride}")


def _has_other_sizes(shape: tuple[int, ...], promised: tuple[int, ...]) -> bool:
    return len(shape) == len(promised) and shape != promised


def has_strides(tensor: Any, spec: TensorSpec) -> bool:
    """Return True if the strides are those of the contract; strides of dimensions of size 1 do not matter."""
    return all(
        size <= 1 or stride == promised
        for size, stride, promised in zip(spec.shape, tensor.stride(), spec.stride, strict=True)
    )


def refuse_shared(output: Any, forbidden: Iterable[tuple[int, int]]) -> None:
    """Refuse outputs that use these ranges of memory, (begin, end). Raises SharedOutputError."""
    for name, tensor in flatten(output):
        address = tensor.data_ptr()
        if any(begin <= address < end for begin, end in forbidden):
            raise SharedOutputError(f"{name} shares the memory of an input")


def extent(tensor: Any) -> tuple[int, int]:
    """(first address, one past the last) of a tensor's storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
