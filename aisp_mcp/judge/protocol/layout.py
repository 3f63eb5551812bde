"""Layout of the tensors in the memory that the verifier and one worker share. Pure arithmetic, no torch.

One region per worker, made of static params and then one frame per call:

    params | call 0: guard in0 guard in1 … guard out0 guard | call 1: … | …

The inputs of a call are never reused, so a cache keyed by pointer, content or position gains nothing. The guards are a
known pattern that reveals writes outside an output.

A worker may say that its outputs are laid out in another way than the baseline's. It writes the order of dimensions as
one number into the control block, from which the reader computes the strides itself. So they cover the bytes of the
output without gaps or overlaps, whatever a worker writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

ALIGN = 256  # bytes; the alignment of the widest vector load and of torch's allocators
GUARD = 256  # bytes of pattern around every tensor of a call
TEXT = 2048  # bytes for a worker's message, such as an error
STATS = 16  # int64 counters that a worker may write
NO_COPY_CALLS = 512  # at most, per round without copies on a GPU; its stream holds twice as many kernels
NO_COPY_BYTES = 2 << 30  # of its inputs and outputs, at most: a millisecond of the device's bandwidth
FLUSH_BYTES = 256 << 20  # several times the L2 of any current device
HEAP_BYTES = 32 << 20  # of a tensor that glibc's allocator keeps when it is freed, at most; larger ones are mapped anew
SEGMENTS = 256  # device allocations that a worker may name: large outputs have one each
PATH_BYTES = 512  # of an input that is the path of a file, padded with zeros
FILE, HOST = "file", "host"  # kinds of inputs: such a path; a tensor that is in host memory on a GPU, too
HEADER, SLOT = 3, 3  # words of a token ring before its requests, and of a request before its prompt
SPARE = 64  # spare room of a ring, in tokens
SEGMENT = 10  # int64 of each: its address, its bytes, and 64 bytes of a handle


def align(offset: int) -> int:
    """The next multiple of ALIGN."""
    return -(-offset // ALIGN) * ALIGN


@dataclass(frozen=True)
class TensorSpec:
    """The contract of one tensor: everything but its values. nbytes is the extent in storage."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    kind: str = "torch.Tensor"

    @cached_property
    def nbytes(self) -> int:
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * self.itemsize

    @classmethod
    def parse(cls, data: dict[str, Any]) -> TensorSpec:
        return cls(**{**data, "shape": tuple(data["shape"]), "stride": tuple(data["stride"])})


def _extent(specs: Iterable[TensorSpec]) -> int:
    return sum(align(spec.nbytes) + GUARD for spec in specs)


@dataclass(frozen=True)
class RingShape:
    """Bounds of a trace: requests, tokens of a prompt, tokens to emit for a request."""

    requests: int
    prompt: int
    tokens: int

    @property
    def capacity(self) -> int:
        """Tokens that the ring holds."""
        return self.requests * self.tokens + SPARE

    @property
    def slots_end(self) -> int:
        """Index of the first word after the requests."""
        return HEADER + self.requests * (SLOT + self.prompt)

    @property
    def words(self) -> int:
        return self.slots_end + 2 * self.capacity


@dataclass(frozen=True)
class Layout:
    """All offsets follow from the contracts and the number of calls a region can hold.

    tight: a single call is so large that the processes must take turns with the device memory.
    """

    params: tuple[TensorSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    capacity: int
    ring: RingShape | None = None  # of a serving benchmark; it is in the control block
    tight: bool = False

    @cached_property
    def frame(self) -> int:
        """Bytes of one call, inputs, outputs and guards."""
        return GUARD + _extent(self.inputs) + _extent(self.outputs)

    @cached_property
    def inputs_end(self) -> int:
        """End of the inputs in a call's frame."""
        return GUARD + _extent(self.inputs)

    @cached_property
    def outputs_begin(self) -> int:
        """Begin of an arena of the first call's outputs alone in an arena of this layout."""
        return self.params_bytes + self.inputs_end - 2 * GUARD

    @cached_property
    def params_bytes(self) -> int:
        return GUARD + _extent(self.params)

    @cached_property
    def arena_bytes(self) -> int:
        """Bytes of the region of the tensors (device memory on a GPU)."""
        return self.params_bytes + self.capacity * self.frame

    @property
    def control_bytes(self) -> int:
        """Bytes of the host region: per call its duration in ns and its outputs' addresses, the orders of the outputs,
        device allocations, counters, the worker's message, and the token ring.
        """
        return self.text_offset + TEXT + (8 * self.ring.words if self.ring else 0)

    @property
    def text_offset(self) -> int:
        """Offset of the worker's message in the control block; the numbers come before it."""
        return 8 * (self.capacity * (1 + len(self.outputs)) + len(self.outputs) + SEGMENTS * SEGMENT + STATS)

    @cached_property
    def own(self) -> Layout:
        """The layout of inputs alone: in rounds without copies on a GPU, workers hold them in their own memory."""
        return Layout((), self.inputs, (), min(self.capacity, NO_COPY_CALLS, max(NO_COPY_BYTES // self.frame, 1)))

    def place_params(self) -> Iterator[tuple[TensorSpec, int]]:
        """(contract, offset) of each static tensor."""
        return self._walk(self.params, GUARD)

    def place_inputs(self, call: int) -> Iterator[tuple[TensorSpec, int]]:
        """(contract, offset) of each input of a call."""
        return self._walk(self.inputs, self.params_bytes + call * self.frame + GUARD)

    def place_outputs(self, call: int) -> Iterator[tuple[TensorSpec, int]]:
        """(contract, offset) of each output of a call."""
        start = self.params_bytes + call * self.frame
        return ((spec, start + offset) for spec, offset in self.frame_outputs())

    def overlapping_outputs(self, addresses: Sequence[int]) -> tuple[str, str] | None:
        """Names of two outputs of one call that have memory in common. addresses: of the outputs of all calls."""
        width = len(self.outputs)
        for first in range(0, len(addresses) if width > 1 else 0, width):
            call = zip(addresses[first : first + width], self.outputs, strict=True)
            spans = sorted((address, address + spec.nbytes, spec.name) for address, spec in call if spec.nbytes)
            for (_, end, one), (begin, _, other) in pairwise(spans):
                if begin < end:
                    return one, other
        return None

    def frame_outputs(self) -> Iterator[tuple[TensorSpec, int]]:
        """(contract, offset from the start of its frame) of each output."""
        return self._walk(self.outputs, self.inputs_end)

    def frame_guards(self) -> Iterator[tuple[int, int]]:
        """(offset from the start of a frame, bytes) of the guards: one before the first output and one after each."""
        yield self.inputs_end - GUARD, GUARD
        for spec, offset in self.frame_outputs():
            yield offset + spec.nbytes, align(spec.nbytes) - spec.nbytes + GUARD

    @staticmethod
    def _walk(specs: Iterable[TensorSpec], offset: int) -> Iterator[tuple[TensorSpec, int]]:
        for spec in specs:
            yield spec, offset
            offset += align(spec.nbytes) + GUARD

    @cached_property
    def host(self) -> tuple[str, ...]:
        """Names of the inputs that are in host memory on any device."""
        return tuple(spec.name for spec in self.inputs if spec.kind in (FILE, HOST))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Names of the inputs that are paths."""
        return tuple(spec.name for spec in self.inputs if spec.kind == FILE)

    def with_paths(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with a str instead of the bytes of each path."""
        if not self.files:
            return inputs
        paths = {name: bytes(inputs[name].numpy()).rstrip(b"\0").decode() for name in self.files}
        return {**inputs, **paths}

    def of_rank(self, rank: int) -> Layout:
        """The part of one rank: inputs and static tensors named NAME@RANK, outputs named out.rankNN.NUMBER."""
        end, begin = f"@{rank}", f"out.rank{rank:02d}."
        params, inputs = (
            tuple(replace(spec, name=spec.name.removesuffix(end)) for spec in specs if spec.name.endswith(end))
            for specs in (self.params, self.inputs)
        )
        return Layout(params, inputs, tuple(s for s in self.outputs if s.name.startswith(begin)), self.capacity)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Layout:
        groups = {key: tuple(TensorSpec.parse(item) for item in data[key]) for key in ("params", "inputs", "outputs")}
        ring = RingShape(**data["ring"]) if data["ring"] else None
        return cls(capacity=data["capacity"], ring=ring, tight=data.get("tight", False), **groups)


def capacity_for(params: int, frame: int, budget: int, most: int) -> int:
    """Number of calls that fit into budget bytes: at least one, at most `most`."""
    return max(1, min(most, (budget - params) // max(frame, 1)))


MOST_DIMS = 14  # that fit into one number


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the strides cover a block of memory without gaps or overlaps, in some order of the dimensions."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= size if size > 1 else 1
    return True


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides that cover a block of memory. order: dimensions from the largest stride to the smallest."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * max(shape[dim], 1)
    return tuple(strides)


def order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Dimensions from the largest stride to the smallest; None if there are gaps, overlaps or too many dimensions."""
    if len(shape) > MOST_DIMS or 0 in shape or not is_dense(shape, strides):
        return None
    return tuple(sorted(range(len(shape)), key=lambda dim: -strides[dim]))


def encode(order: Sequence[int]) -> int:
    """The number of an order; never 0, which stands for the contract's strides."""
    number = 1
    for dim in order:
        number = number << 4 | dim
    return number


def in_order(spec: TensorSpec, number: int) -> TensorSpec:
    """The contract, whose own strides are dense, with those of that order; unchanged if the number is no order of its
    dimensions.
    """
    dims = len(spec.shape)
    order = [number >> 4 * at & 15 for at in reversed(range(dims))]
    if dims > MOST_DIMS or number >> 4 * dims != 1 or sorted(order) != list(range(dims)):
        return spec
    return replace(spec, stride=dense_strides(spec.shape, order))
