"""Outputs in the worker that made them: everything that they promise except their values, their strides, and the
outputs of a CPU round, which stay where their calls left them for the parent to read while the worker is stopped.

The worker is not trusted. If a candidate manipulates these checks, the verifier still compares its values. Outputs
whose strides the contract leaves free keep those of the first ones; others are copied into the contract's strides as
part of each timed call. Anything between two calls counts as time of the round, and a candidate could skip it. So it
is kept short: one microsecond for an output that meets the contract.
"""

from __future__ import annotations

import ctypes
import gc
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aisp_mcp.judge.protocol.layout import HEAP_BYTES, Layout, TensorSpec, encode, order_of
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.shared_memory import (
    COPIED_INTO_STRIDES,
    COPIED_NS,
    OWN_STRIDES,
    STRIDES,
    UNSETTLED,
    Arena,
    ControlBlock,
)

FIXED = "must not depend on the values of its inputs"
# Bytes of an input that are read before a call: what a core's own caches hold.
MOST_READ = 1 << 20


class ContractError(Exception):
    """The output's type, dtype, shape, device or strides are not what the specification promises."""


class SharedOutputError(Exception):
    """The output shares the memory of an input, and the contract does not allow it."""


@dataclass
class OutputRules:
    """Rules for the outputs of one worker. checked: check the contract. strict: including strides. apart: outputs of a
    call must not share memory. changed: positions of the arguments that it may change. off_limits: (begin, end) of
    memory that outputs must not use.
    """

    checked: bool = True
    strict: bool = False
    apart: bool = False
    changed: frozenset[int] = frozenset()
    off_limits: list[tuple[int, int]] = field(default_factory=list)


def check_form(outputs: Sequence[Any], specs: Sequence[TensorSpec]) -> None:
    """Raise ContractError if a call returns another number of outputs than the specification's first call, or under
    other keys.
    """
    (found, are_values), (promised, were_values) = map(_keys, (outputs, [(spec.name, None) for spec in specs]))
    if are_values and not were_values:
        raise ContractError("it returns lists, texts or other values where the baseline returns arrays or numbers")
    if found and found != promised:  # those of copies are lost
        raise ContractError(f"it returns {_of_keys(found)}, and the baseline {_of_keys(promised)}")
    if len(outputs) != len(specs):
        raise ContractError(
            f"{len(outputs)} outputs instead of the {len(specs)} that the baseline's first call returned"
        )


def _keys(outputs: Sequence[tuple[str, Any]]) -> tuple[list[str], bool]:
    """Keys of a dict of outputs; True for Python values, of which a hash is compared."""
    keys = [name.removeprefix("out.") for name, _ in outputs if name != "out"]
    return [key for key in keys if not key.isdigit()], "hash" in keys


def _of_keys(keys: Sequence[str]) -> str:
    return f"a dict of {', '.join(keys)}" if keys else "no dict"


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


def refuse_shared(output: Any, rules: OutputRules) -> None:
    """Refuse outputs that use memory that is off limits, or that of each other. Raises SharedOutputError."""
    named = flatten(output)
    for name, tensor in named:
        address = tensor.data_ptr()
        if any(begin <= address < end for begin, end in rules.off_limits):
            raise SharedOutputError(f"{name} shares the memory of an input")
    starts = sorted((tensor.data_ptr(), name) for name, tensor in named if tensor.numel())
    for (address, one), (start, other) in pairwise(starts if rules.apart else ()):
        if address == start:
            raise SharedOutputError(f"{one} and {other} share memory")


def extent(tensor: Any) -> tuple[int, int]:
    """(first address, one past the last) of a tensor's storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


class OutputStrides:
    """specs: contracts of the outputs, in the strides that count. targets: memory of the arena for the outputs of each
    call, in these strides. free: the first outputs decide.
    """

    def __init__(self, control: ControlBlock, arena: Arena, free: bool) -> None:
        self._control, self._arena, self._free = control, arena, free
        self.targets: list[list[Any]] = []
        self._use(arena)

    def _use(self, arena: Arena) -> None:
        self.specs = arena.layout.outputs
        self.targets[:] = [arena.outputs(call) for call in range(arena.layout.capacity)]

    def fit(self, output: Any) -> bool:
        """Return True if the outputs of a call can be read as they are, False if they must be copied."""
        free, self._free = self._free, False
        tensors = [tensor for _, tensor in flatten(output)]
        return not self._differ(tensors) or (free and self._adopt(tensors))

    def _differ(self, tensors: Sequence[Any]) -> bool:
        return len(tensors) == len(self.specs) and any(map(_differs, tensors, self.specs))

    def _adopt(self, tensors: Sequence[Any]) -> bool:
        """Take the strides of these outputs, from now on, if all of them cover a block of memory. Return False if one
        does not.
        """
        orders = [0] * len(tensors)
        for index, (tensor, spec) in enumerate(zip(tensors, self.specs, strict=True)):
            if not _differs(tensor, spec):
                continue
            order = order_of(spec.shape, tensor.stride())
            if order is None or tensor.is_conj() or tensor.is_neg():
                return False
            orders[index] = encode(order)
        for index, order_number in enumerate(orders):
            self._control.orders[index] = order_number
        self._control.stats[STRIDES] = OWN_STRIDES
        self._use(self._arena.in_orders(orders))
        self.specs = tuple(
            replace(spec, stride=tuple(tensor.stride())) for tensor, spec in zip(tensors, self.specs, strict=True)
        )  # those of dimensions of one element, too, so that later outputs are recognised at once
        return True

    def copied(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the program so that its outputs are copied into these strides, as part of the timed call."""
        self._control.stats[STRIDES] = COPIED_INTO_STRIDES

        def wrapped(**inputs: Any) -> Any:
            return self.whole(run(**inputs))

        if steps := getattr(run, "steps", None):
            copied = steps._replace(function=lambda *a, **k: self.whole(steps.whole(*a, **k)))
            wrapped.steps = copied  # type: ignore[attr-defined]
        return wrapped

    def whole(self, output: Any) -> Any:
        """The outputs of a call, copied where they have other strides."""
        import torch

        tensors = [tensor for _, tensor in flatten(output)]
        if not self._differ(tensors):
            return output
        return [
            torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
            if _differs(tensor, spec)
            else tensor
            for tensor, spec in zip(tensors, self.specs, strict=True)
        ]


def _differs(tensor: Any, spec: TensorSpec) -> bool:
    """Return True if an output of the promised shape has other strides, or a pending conjugation."""
    if tuple(tensor.shape) != spec.shape:
        return False
    return tensor.is_conj() or tensor.is_neg() or not has_strides(tensor, spec)


def _lists_in(output: Any) -> Iterator[int]:
    """Identities of the lists, dicts and sets that an output of Python's own types consists of."""
    if isinstance(output, dict):
        yield from (found for item in output.values() for found in _lists_in(item))
    elif isinstance(output, list | tuple):
        yield from (found for item in output for found in _lists_in(item))
    if isinstance(output, list | dict | set):
        yield id(output)


RECENT = 4  # outputs
# Memory for the outputs of so many more calls is touched: an allocator needs a dozen to find places for them.
MORE_CALLS, MOST_BYTES = 16, 256 << 20


def touch_memory(layout: Layout, count: int) -> None:
    """Touch memory for the outputs of a round of that many calls, so that no timed call has to."""
    import torch

    sizes = [spec.nbytes for spec in layout.outputs if spec.nbytes <= HEAP_BYTES]
    calls = min(count + MORE_CALLS, MOST_BYTES // max(sum(sizes), 1))
    blocks = [torch.empty(size, dtype=torch.uint8).zero_() for size in calls * sizes]
    del blocks


class HeldOutputs:
    """Outputs of one round. addresses: of all outputs, call by call. copied_ns: spent on copies of outputs that a later
    call would have overwritten.

    wrap(): called if outputs must be copied into the strides that count. If a program returns memory of an output that
    is still alive, it will do so again, so all its later outputs are copied. The last few outputs stay alive beyond
    their round, so that rounds of one call, which come first, reveal this before an output is lost. alone: this round
    has only one call, so nothing overwrites its output.
    """

    def __init__(
        self, rules: OutputRules, strides: OutputStrides, arena: Arena, control: ControlBlock, wrap: Callable[[], None]
    ) -> None:
        import torch

        self._torch, self._rules, self._strides, self._wrap = torch, rules, strides, wrap
        self._arena, self._control = arena, control
        self._shared = range(*extent(arena.flat))
        self._reuses = self.alone = self._settled = False
        self._recent = deque[tuple[Sequence[Any], list[int]]](maxlen=RECENT)
        self.outputs: list[Sequence[Any]] = []
        self.addresses: list[int] = []
        self._inputs: list[dict[str, Any]] = []
        self.arguments: list[tuple[Any, ...]] = []  # of each call, for a program that has steps
        self._has_arguments, self._are_done, self._are_listed = False, True, False
        self._steps: Any = None
        self._late: list[Any] = []  # outputs of the last round, as the program returned them
        self._single: Any = None  # output of the last round of one call: its lists have identities as long as it lives
        self._numbers: Any = None  # outputs of the last round, if they are numbers
        self._expect()
        self.clear()

    def _expect(self) -> None:
        self._expected = [
            (getattr(self._torch, spec.dtype), self._torch.Size(spec.shape), spec.stride)
            for spec in self._strides.specs
        ]

    def clear(self) -> None:
        """Release the outputs of the previous round."""
        last = self.outputs[-RECENT:]
        self._recent.extend((tensors, [tensor.data_ptr() for tensor in tensors]) for tensors in last)
        self.outputs, self.addresses = [], []
        self._taken = {address for _, addresses in self._recent for address in addresses if address}
        self.copied_ns = 0

    @property
    def last(self) -> Any:
        """The output of the last call, one tensor or several."""
        tensors = self.outputs[-1]
        return tensors[0] if len(tensors) == 1 else tensors

    def round_at_rest(self, count: int, run: Callable[..., Any], drops: bool = False) -> None:
        """Time `count` calls, each on new inputs, and record the addresses of their outputs, or leave that to settle().
        drops: release each output after its call instead, and read the inputs before it.

        What happens between two calls counts as time of the round, and only the rest of a gain is proven. So outputs of
        a program that has met the contract are only kept.
        """
        clock, durations, outputs = time.perf_counter_ns, self._control.durations, list[Any]()
        is_late, self.alone = self._settled and not self._reuses, count == 1
        keep: Callable[[Any], None] = outputs.append if is_late else self.keep
        self._steps = steps = getattr(run, "steps", None)
        if steps is None:
            given = [((), inputs) for inputs in self._given(count)]
        else:
            done = steps.listed if self._are_listed else steps.function
            given, run = self._arguments_of(count, run), done if self._are_done else steps.whole
            if self._are_done and not is_late:
                keep = self._keep_first
        if drops:
            keep = _drop
        for call, (args, kwargs) in enumerate(self._read_first(given) if drops else given):
            begin = clock()
            output = run(*args, **kwargs)
            end = clock()
            keep(output)
            del output
            durations[call] = end - begin
        self._late = outputs
        self._show()

    def _read_first(self, given: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The arguments of each call, once its inputs are in the caches, as for a caller that has just made them."""
        for arguments, inputs in zip(given, self._given(len(given)), strict=True):
            for tensor in inputs.values():
                if isinstance(tensor, self._torch.Tensor):
                    nbytes = min(tensor.numel() * tensor.itemsize, MOST_READ)
                    zlib.adler32((ctypes.c_char * nbytes).from_address(tensor.data_ptr()))
            yield arguments

    def _keep_first(self, output: Any) -> None:
        self._note(output)
        self.keep(self._steps.tensors(output))

    def _note(self, output: Any) -> None:
        """Note if a call's output is not done, and if arrays are to become lists, which is then a part of each call."""
        becomes_list = self._steps.becomes_list(output)
        self._are_listed = self._are_listed or becomes_list
        self._are_done = self._are_done and (becomes_list or self._steps.is_done(output))

    def settle(self) -> None:
        """Make tensors of the outputs of the last round, and record their addresses. The parent counts what this takes
        a candidate longer than the baselines (verdict/aside.py).

        A list that the program fills again in its next call has to become a tensor before that: rounds of one call
        reveal it.
        """
        late, self._late, steps = self._late, [], self._steps
        if steps and self._are_done:
            outputs = steps.tensors_of_calls(late)
            is_again = len(late) == 1 and not {*_lists_in(self._single)}.isdisjoint(_lists_in(late[0]))
            for output in late:
                self._note(output)
            self._are_done = self._are_done and not is_again
            if len(late) == 1:
                [self._single] = late
        else:
            outputs = late
        if len(self._expected) == 1:
            self._keep_all(outputs)
        else:
            for output in outputs:
                self.keep(output)
        self._show()

    def _show(self) -> None:
        """Tell where the outputs are, what copies have cost, and how many outputs are still to become tensors."""
        self._control.addresses[: len(self.addresses)] = array("q", self.addresses)
        self._control.stats[COPIED_NS], self._control.stats[UNSETTLED] = self.copied_ns, len(self._late)

    def convert(self, count: int, run: Any) -> None:
        """Release the outputs of the previous round, and make the arguments of the next one's calls, unless the program
        has no steps, as a compiled one beside a function.
        """
        self.clear()
        self.arguments = []  # or both would need memory
        if hasattr(run, "steps"):
            self.arguments = [run.steps.arguments(**inputs) for inputs in self._given(count)]
            self._has_arguments = True
        gc.collect(0)  # or the round's own collection would visit all elements of lists

    def _arguments_of(self, count: int, run: Any) -> list[tuple[Any, ...]]:
        """The arguments of these calls, made now unless they are views, or convert() has made them for this round."""
        if not self._has_arguments or len(self.arguments) < count:
            self.convert(count, run)
        self._has_arguments = not run.steps.is_copied and not self._arena.layout.files
        return self.arguments[:count]

    def _given(self, count: int) -> list[dict[str, Any]]:
        """The inputs of these calls, which are the same objects in each round; paths are read anew."""
        if self._arena.layout.files:
            return [self._arena.layout.with_paths(self._arena.inputs(call)) for call in range(count)]
        while len(self._inputs) < count:
            self._inputs.append(self._arena.inputs(len(self._inputs)))
        return self._inputs[:count]

    def _keep_all(self, outputs: Any) -> None:
        """Keep the outputs of all calls of a round, one tensor each, or one of the numbers of all calls. Raises as
        keep().
        """
        if isinstance(outputs, self._torch.Tensor):
            if self._is_plain(outputs[0]):
                self._numbers, first, step = outputs, outputs.data_ptr(), outputs.itemsize
                self.addresses = [*range(first, first + step * len(outputs), step)]
                self.outputs = [(number,) for number in outputs[-RECENT:]]
                return
            outputs = outputs.unbind()
        if {*map(type, outputs)} == {self._torch.Tensor} and all(map(self._is_plain, (outputs[0], outputs[-1]))):
            addresses = [output.data_ptr() for output in outputs]
            taken = self._taken | {0, *addresses}
            are_new = len(taken) == len(self._taken | {0}) + len(outputs)
            is_apart = max(addresses) < self._shared.start or min(addresses) >= self._shared.stop
            if are_new and (is_apart or not any(map(self._shared.__contains__, addresses))):
                self.outputs, self.addresses, self._taken = [*zip(outputs, strict=True)], addresses, taken - {0}
                return
        for output in outputs:
            self.keep(output)

    def _is_plain(self, tensor: Any) -> bool:
        """Return True for a single output that meets the contract exactly."""
        return self._are_as_promised([tensor])

    def keep(self, output: Any) -> None:
        """Keep the output of a call alive. Raises ContractError, SharedOutputError."""
        tensors: Sequence[Any] = [tensor for _, tensor in flatten(output)]
        if self._rules.checked and not (self._settled and self._are_as_promised(tensors)):
            tensors = self._mended(output)
        addresses = [self._address(tensor) for tensor in tensors]
        self._reuses = self._reuses or not self._taken.isdisjoint(addresses)
        if self._reuses and not self.alone:
            tensors = self._copied(tensors)
        else:
            self._taken.update(address for address in addresses if address)
        self.outputs.append(tensors)
        self.addresses += [tensor.data_ptr() for tensor in tensors]

    def _are_as_promised(self, tensors: Sequence[Any]) -> bool:
        """Return True if dtype, shape and strides match the contract exactly, and no lazy negation or conjugation is
        pending.
        """
        return len(tensors) == len(self._expected) and all(
            (tensor.dtype, tensor.shape, tensor.stride()) == expected
            and type(tensor) is self._torch.Tensor
            and not tensor.is_neg()
            and not tensor.is_conj()
            for tensor, expected in zip(tensors, self._expected, strict=True)
        )

    def _mended(self, output: Any) -> list[Any]:
        """The output, copied if its strides do not count; from the next call on, the copy is part of the call."""
        named, specs = flatten(output), self._strides.specs
        check_form(named, specs)
        for (name, tensor), spec in zip(named, specs, strict=True):
            check_contract(name, tensor, spec, self._torch.device("cpu"), self._rules.strict)
        if not self._strides.fit(output):
            self._wrap()
            output = self._strides.whole(output)
        self._expect()
        self._settled = True
        return [tensor for _, tensor in flatten(output)]

    def _address(self, tensor: Any) -> int:
        """Address of the tensor; 0 if it is empty. Raises SharedOutputError."""
        address: int = tensor.data_ptr()
        if address in self._shared and self._rules.off_limits:
            raise SharedOutputError("an output shares the memory of an input")
        return address

    def _copied(self, tensors: Sequence[Any]) -> list[Any]:
        begin = time.perf_counter_ns()
        copies = [
            self._torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
            for tensor in tensors
        ]
        self.copied_ns += time.perf_counter_ns() - begin
        return copies


def _drop(output: Any) -> None:
    """Keep nothing."""
