"""Outputs of the baseline and of the float64 reference for given inputs.

A reference in Python loops launches thousands of kernels that take a GPU a few microseconds each, and the host many
times as long. It is evaluated for every call that is compared, always on tensors of the same shapes, so it is replayed
as a CUDA graph (Replayed).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aisp_mcp.bench import Benchmark
from aisp_mcp.errors import AispError
from aisp_mcp.judge.protocol.device_turns import synchronize
from aisp_mcp.judge.protocol.messages import CALLING
from aisp_mcp.judge.protocol.module_loader import flatten, mapped
from aisp_mcp.judge.verifier import evaluation, walks
from aisp_mcp.judge.verifier.checks import formats, values
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.pieces import pieces
from aisp_mcp.judge.verifier.checks.tolerance import components, same_bits
from aisp_mcp.judge.verifier.evaluation import evaluate, evaluate_in_order, evaluate_jittered, widening_operands
from aisp_mcp.judge.verifier.inputs import made
from aisp_mcp.judge.verifier.inputs.files import copied_inputs, is_file, opened

Result = TypeVar("Result")
# Bytes of a result; of larger ones, no more than two are held at a time. Chosen: three of them are 3 GiB at most.
HELD_BYTES = 1 << 30
# Seconds of the host per call from which on a program is captured: a capture takes as long as a call, and half a second
# more. Bytes of the tensors up to which: a graph keeps them and all intermediate results. Share of the largest element
# by which a replay may differ from the call. docs/decisions/0085-replay-slow-references-as-cuda-graphs.md.
SLOW_S, MOST_BYTES, AGREES = 0.1, 1 << 30, 1e-9


def widen(tensors: dict[str, Any]) -> dict[str, Any]:
    """Copy the tensors: floating-point ones as float64, complex ones as complex128, all others in their own type.

    Paths are left as they are.
    """
    return {name: _wide(tensor) for name, tensor in tensors.items()}


def _addresses(output: Any) -> dict[int, int]:
    """Sizes in bytes of the memory that the tensors of an output use, by address. It may still have other values."""
    import torch

    tensors = [
        value for _, value in flatten(output) if isinstance(value, torch.Tensor) and value.layout == torch.strided
    ]
    memory = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return {address: size for address, size in memory.items() if address}


def _wide(tensor: Any) -> Any:
    import torch

    if isinstance(tensor, str):
        return tensor
    if tensor.is_complex():
        return tensor.to(torch.complex128, copy=True)
    return tensor.double() if tensor.is_floating_point() and tensor.itemsize < 8 else tensor.clone()


def _called(spec: Benchmark, tensors: dict[str, Any], in_parts: bool) -> Any:
    """The reference's output. in_parts: its operations widen what they get."""
    if not in_parts:
        return spec.reference(**tensors)
    with widening_operands():
        return mapped(spec.reference(**tensors), evaluation.widened)


def disturb(tensors: Iterable[Any], seed: int, low: float, high: float) -> None:
    """Change each element of the floating-point and complex tensors by a share of it, drawn between low and high; equal
    ones alike where they have ties.
    """
    import torch

    draws: dict[Any, Any] = {}  # generator by device
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or tensor.is_complex()):
            device = tensor.device
            draws[device] = draws.get(device) or torch.Generator(device=device).manual_seed(seed)
            for (part,) in pieces(tensor):
                by = torch.empty(part.shape, dtype=torch.float64, device=device)
                by.uniform_(low, high, generator=draws[device])
                part.mul_(walks.alike(by, part).add(1.0))


class ReferenceEvaluator:
    """The specification with its static tensors, in their own types and in float64.

    reuses_memory: the baseline's calls return the same memory again, so that each result is copied. in_parts: float64
    copies of inputs and static tensors do not fit into memory, so each operation of the reference gets its own.
    """

    def __init__(self, spec: Benchmark, params: dict[str, Any], reuses_memory: bool = False) -> None:
        self.spec = spec
        self.params = params
        self.in_parts = False
        self._is_function = not (spec.in_place or spec.tolerance.stochastic)
        # Neither refers to this object: in a cycle, gigabytes would stay until the next garbage collection.
        self._run = Replayed(lambda given: spec.run(**given, **params), self._is_function)
        try:
            self.wide = widen(params)
        except Exception as error:
            if not evaluation.is_out_of_memory(error):
                raise
            self.in_parts = True
        self._prepare()
        self.reuses_memory = reuses_memory
        self.left: dict[str, tuple[Any, Any]] = {}  # see both()
        self.answers_in_inputs = False  # also of calls that leave them as they are; known after both()
        self.convolves = True  # until in_tf32() has found no convolution

    def _prepare(self) -> None:
        """Prepare the reference, with static tensors in float64 or in parts."""
        spec, in_parts = self.spec, self.in_parts
        if in_parts:
            self.wide = self.params
            if CALLING in sys.modules:
                sys.modules[CALLING].keep_modules_narrow()
        static, may_replay = self.wide, self._is_function and not in_parts  # a graph keeps all that it computes
        self._truth = Replayed(lambda wide: evaluate(lambda: _called(spec, wide | static, in_parts)), may_replay)

    def _reference(self, tensors: dict[str, Any]) -> Any:
        return _called(self.spec, tensors, self.in_parts)

    def _widened(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """widen(), but for tensors that an operation widens."""
        kept = tensors.keys() - {*self.spec.in_place} if self.in_parts else set()
        return {name: tensor if name in kept else _wide(tensor) for name, tensor in tensors.items()}

    def _fitting(self, work: Callable[[], Result]) -> Result:
        """The work's result; if memory is short, of the work done again, in parts from now on."""
        try:
            return work()
        except Exception as error:
            if self.in_parts or not evaluation.is_out_of_memory(error):
                raise
        self.in_parts = True
        self._prepare()
        return work()

    @contextmanager
    def _opened_wide(self, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The opened inputs, widened; the originals are released, since large ones leave too little memory."""
        with opened(inputs) as given:
            wide = self._widened(given)
            given.clear()
            inputs.clear()
            yield wide

    @property
    def reuses_memory(self) -> bool:
        return self._run.copies

    @reuses_memory.setter
    def reuses_memory(self, value: bool) -> None:
        self._run.copies = self._truth.copies = value

    def baseline(self, inputs: dict[str, Any]) -> Any:
        """The baseline's output; the inputs, which may name static tensors, are left as they are."""
        with opened(inputs) as given:
            return self._kept(self.spec.run(**self.params | copied_inputs(given)))

    def first_calls(self, inputs: dict[str, Any], device: str) -> tuple[Any, float, float]:
        """The output of three calls of the baseline, the shorter time of the last two in seconds, and its processors'
        time, which on a GPU is that time.

        If they return the same memory, as a program with an output buffer of its own does, reuses_memory is set.
        """
        results, times, busy, taken = [], list[float](), list[float](), set[int]()
        for _ in range(3):
            synchronize(device)
            begin, busy_before = time.perf_counter(), time.process_time()
            results.append(self.baseline(inputs))
            synchronize(device)
            times.append(time.perf_counter() - begin)
            busy.append(time.process_time() - busy_before if device == "cpu" else times[-1])
            # Read now: torch.compile's graphs raise an error for a result that a later call has overwritten.
            memory = _addresses(results[-1])
            self.reuses_memory = self.reuses_memory or not taken.isdisjoint(memory)
            if sum(memory.values()) > HELD_BYTES:
                del results[:-1]
                taken.clear()
            taken.update(memory)  # of the results that are held, so that the allocator does not use it again
        return self._kept(results[-1]), min(times[1:]), min(busy[1:])

    def _kept(self, output: Any) -> Any:
        """The output, in memory that no later call overwrites."""
        return clones(output) if self.reuses_memory else output

    def once(self, inputs: dict[str, Any]) -> Any:
        """The same, but consumes the inputs if the contract allows the baseline to change them."""
        with opened(inputs) as given:
            return self._run(given)

    def both(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return (baseline's output, float64 output). Consumes the inputs if the contract allows the baseline to change
        them.

        left: for this call, the contents that baseline and reference leave in the inputs that are part of the answer.
        Raises BenchmarkError NO_FLOAT64.
        """
        state = {name: inputs[name].clone() for name in self._state_names()}
        with opened(inputs) as given:
            reference, wide = self._truth_of(given)
            truth = {name: wide[name] for name in state}
            wide.clear()  # before the baseline needs memory
            output = self._run(given)
            self.left = self._left(state, given, output, truth)
            return output, reference

    def _truth_of(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The float64 output, and the inputs as it leaves them."""

        def work() -> tuple[Any, dict[str, Any]]:
            wide = self._widened(given)
            return self._truth(wide), wide

        return self._fitting(work)

    def _state_names(self) -> list[str]:
        """Names of the inputs whose content may be part of the answer, if elements are compared at all."""
        if kind_of(self.spec) is not Kind.ELEMENTS:
            return []
        return [name for name in self.spec.in_place if name not in self.spec.scratch]

    def _left(
        self, before: dict[str, Any], given: dict[str, Any], output: Any, truth: dict[str, Any]
    ) -> dict[str, tuple[Any, Any]]:
        """(baseline's, reference's) of the inputs that the baseline changed and does not return whole.

        A custom reference() may leave the inputs alone: then the content that the baseline leaves is the truth.
        """
        returned = {(tensor.untyped_storage().data_ptr(), tensor.numel()) for _, tensor in flatten(output)}
        silent = {
            name: given[name]
            for name in before
            if (given[name].untyped_storage().data_ptr(), given[name].numel()) not in returned
        }
        self.answers_in_inputs = bool(silent)
        changed = {name: value for name, value in silent.items() if not same_bits(value, before[name])}
        return {
            name: (value, _wide(value) if bool((truth[name] == before[name]).all()) else truth[name])
            for name, value in changed.items()
        }

    def jittered(self, inputs: dict[str, Any], eps: float, most_terms: float, seed: int) -> Any:
        """The reference's output with inputs and the results of all operations off by half an eps, independently per
        element. Its distance from the reference shows how far intermediate rounding can grow. most_terms: see
        evaluate_jittered(). Consumes the inputs.
        """
        with self._opened_wide(inputs) as wide:
            params = self._fitting(lambda: self._widened(self.params))
            disturb([*wide.values(), *(() if self.in_parts else params.values())], seed, -eps / 2, eps / 2)
            return evaluate_jittered(lambda: self._reference(wide | params), eps, most_terms, seed)

    def is_seen(self, inputs: dict[str, Any]) -> bool:
        """Return True if torch sees the reference compute. Consumes the inputs."""
        with self._opened_wide(inputs) as wide:
            return evaluation.computes(lambda: self._reference(wide | self.wide))

    def summed_axes(self, inputs: dict[str, Any]) -> walks.Axes:
        """The axes of each input that the outputs sum over. Consumes the inputs."""
        with self._opened_wide(inputs) as wide:
            run = lambda wide: self._floats(evaluate(lambda: self._reference(wide | self.wide)))  # noqa: E731
            return walks.summed_axes(run, wide)

    def _floats(self, output: Any) -> Any:
        """The output; of one that is any Python value, its floats as tensors."""
        return values.numbers(output, output) if kind_of(self.spec) is Kind.VALUES else output

    def walked(self, inputs: dict[str, Any], axes: walks.Axes, eps: float, seed: int, *, straight: bool) -> Any:
        """The reference's output with inputs off by the roundings of sums along these axes (see walks.py). Consumes the
        inputs.
        """
        import torch

        with self._opened_wide(inputs) as wide:
            draw = torch.Generator().manual_seed(seed)
            for name, summed in axes.items():
                wide[name] = walks.walked(wide[name], summed, eps, draw, straight=straight)
            for name in made.SEEN.keys() & wide.keys() if not straight else ():
                wide[name] = made.walked(wide[name], eps, seed)
            return evaluate(lambda: self._reference(wide | self.wide))

    def changed(self, inputs: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> Any:
        """The reference's output with the widened inputs, which may name static tensors, as change() leaves them.
        Consumes the inputs.
        """
        with self._opened_wide(inputs) as wide:
            change(wide)
            return evaluate(lambda: self._reference(self.wide | wide))

    def in_order(self, inputs: dict[str, Any]) -> Any:
        """The reference's output with sums in float32 that add one term after the other. Uses up the inputs."""
        with self._opened_wide(inputs) as wide:
            params = self._fitting(lambda: self._widened(self.params))
            return evaluate_in_order(lambda: self._reference(wide | params))

    def in_tf32(self, inputs: dict[str, Any], narrowed: Callable[[Any], Any]) -> Any:
        """The reference's output with the operands of convolutions in TF32 (see evaluation.py). Consumes the inputs."""
        with self._opened_wide(inputs) as wide:
            output, self.convolves = evaluation.evaluate_in_tf32(lambda: self._reference(wide | self.wide), narrowed)
            return output

    def strained(self, inputs: dict[str, Any], share: float) -> Any:
        """The reference's output with each tensor off by that share as a whole, alternately up and down.

        Where numbers cancel, the result differs by far more. Consumes the inputs.
        """
        with self._opened_wide(inputs) as wide:
            wide |= self.wide
            sign = 1.0
            for name, value in wide.items():
                if not isinstance(value, str) and (value.is_floating_point() or value.is_complex()):
                    wide[name], sign = value * (1.0 + sign * share), -sign
            return evaluate(lambda: self._reference(wide))

    def rounded(self, inputs: dict[str, Any]) -> Any:
        """The reference's output with operands rounded to the format of the contract (see formats.py)."""
        params = self.params | formats.rounded_operands(self.params, inputs, self.spec.tolerance)
        wide = self._widened({name: params.pop(name, value) for name, value in inputs.items()} | params)
        return evaluate(lambda: self._reference(wide))


def shared_memory(reference: ReferenceEvaluator, inputs: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether an output of the baseline shares the memory of an input, and whether outputs share that of each
    other. Consumes the inputs.
    """
    held = {tensor.untyped_storage().data_ptr() for tensor in inputs.values() if not is_file(tensor)}
    with opened(inputs) as given:
        output = reference.spec.run(**given, **reference.params)
    used = [tensor.untyped_storage().data_ptr() for _, tensor in flatten(output)]
    return not held.isdisjoint(used), len(set(used)) < len(used)


class Replayed:
    """A function of named tensors. If the host is slow to launch its kernels, the second call captures them, and later
    calls replay them, provided that a replay gives the result of that call.

    A function that waits for the device is called as it is. Do not use one that changes its tensors, or whose result
    depends on anything else. copies: its calls return the same memory again, so each result is copied.
    """

    copies = False

    def __init__(self, function: Callable[[dict[str, Any]], Any], may_replay: bool) -> None:
        self._program, self._may_replay = function, may_replay
        self._was_slow = False
        self._graph: Any = None
        self._given: dict[str, Any] = {}
        self._result: Any = None

    def __call__(self, tensors: dict[str, Any]) -> Any:
        if not self._may_replay or not all(getattr(tensor, "is_cuda", False) for tensor in tensors.values()):
            return self._function(tensors)
        if sum(tensor.nbytes for tensor in tensors.values()) > MOST_BYTES:
            return self._function(tensors)
        if self._graph is not None:
            return self._replay(tensors)
        if self._was_slow:
            return self._captured(tensors)
        begin = time.perf_counter()
        result = self._function(tensors)
        self._was_slow = time.perf_counter() - begin > SLOW_S
        return result

    def _function(self, tensors: dict[str, Any]) -> Any:
        result = self._program(tensors)
        return clones(result) if self.copies else result

    def _captured(self, tensors: dict[str, Any]) -> Any:
        """Capture the function's kernels and call it once more; keep the graph if both give the same result."""
        graph = self._capture(tensors)
        result = self._function(tensors)
        self._may_replay = graph is not None and self._agrees(graph, result)
        if self._may_replay:
            self._graph = graph
        else:
            self._given, self._result = {}, None
        return result

    def _capture(self, tensors: dict[str, Any]) -> Any:
        import torch

        self._given = {name: tensor.clone() for name, tensor in tensors.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._result = self._function(dict(self._given))
        except (RuntimeError, AispError):  # it waits for the device, or memory is short
            torch.cuda.synchronize()
            return None
        return graph

    def _agrees(self, graph: Any, result: Any) -> bool:
        """Return True if a replay on the tensors of the capture gives that result."""
        graph.replay()
        pairs = zip(flatten(self._result), flatten(result), strict=True)
        return all(_are_same(one, other) for (_, one), (_, other) in pairs)

    def _replay(self, tensors: dict[str, Any]) -> Any:
        for name, tensor in self._given.items():
            tensor.copy_(tensors[name])
        self._graph.replay()
        return clones(self._result)


def clones(output: Any) -> Any:
    """The same structure of tensors in new memory; strides with gaps become contiguous ones."""
    return mapped(output, lambda tensor: tensor.clone())


def _are_same(one: Any, other: Any) -> bool:
    import torch

    if one.dtype != other.dtype or not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return bool(one.dtype == other.dtype and torch.equal(one, other))
    one, other = components(one).double(), components(other).double()
    size = float(other.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    return bool(torch.allclose(one, other, rtol=0.0, atol=AGREES * size, equal_nan=True))
