"""Run a problem's recipe and baseline twice, in a separate process, and write the facts that the judge needs as JSON.

    python -m aisp_mcp.suites.adapters.recording.recorder FORMAT FOLDER/reference.json

The code that runs here is the user's specification; it is isolated all the same, like a measured program.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.adapted import Reference, on_device
from aisp_mcp.judge.candidate.seeding import Draws, seeded
from aisp_mcp.judge.loading import flatten
from aisp_mcp.suites.adapters.base import Recorded, TensorFacts
from aisp_mcp.suites.adapters.recording import determinism, distributions, footprint

SECRETLESS = ("NO_INPUTS", "BAD_INPUTS", "BAD_OUTPUT", "NOT_DETERMINISTIC")  # another way may measure them
CALL_S = 20.0  # seconds that one call may take
MARK = "aisp-recorded "  # begins the line of the answer, because the problem may print too


def main() -> int:
    """Print the record, or the error, after MARK."""
    name, facts = sys.argv[1], Path(sys.argv[2])
    try:
        known = json.loads(facts.read_text("utf-8"))
        reference = import_module(f"aisp_mcp.judge.candidate.formats.{name}").Reference(facts.parent, **known)
        with footprint.watched(reference, _device(), _refuse), _hinted(reference):
            recorded = record(reference)
        _print({"recorded": asdict(recorded)})
    except BenchmarkError as error:
        _refuse(error)
    except Exception as error:  # the user's code may raise anything
        if type(error).__name__ == "OutOfMemoryError":
            message = f"Two calls of the problem do not fit into memory: {str(error).partition(' GPU ')[0]}"
            _refuse(BenchmarkError("TOO_LARGE", message, footprint.SMALLER))
        _refuse(BenchmarkError("RAISED", f"The problem raised {type(error).__name__}: {str(error)[:500]}"))
    return 0


@contextmanager
def _hinted(reference: Reference) -> Iterator[None]:
    """Add the format's own remedy to errors, if it has one."""
    try:
        yield
    except BenchmarkError as error:
        if reference.otherwise is None or error.code not in SECRETLESS:
            raise
        raise BenchmarkError(error.code, error.message, reference.otherwise) from error


def _refuse(error: BenchmarkError) -> NoReturn:
    """End the process after printing the error, regardless of its other threads."""
    _print({"error": [error.code, error.message, error.hint]})
    os._exit(0)


def _print(answer: dict[str, Any]) -> None:
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


def record(reference: Reference) -> Recorded:
    """Two draws of the inputs and static tensors, and two calls. Raises BenchmarkError."""
    settings: dict[str, Any] = {}
    while True:
        try:
            return replace(_recorded(reference), settings=settings)
        except BenchmarkError as error:
            changed = reference.settle() if error.code == "NOT_DETERMINISTIC" else None
            if changed is None:
                raise
            settings = changed


def _recorded(reference: Reference) -> Recorded:
    """The record of a problem as it is run now. Raises BenchmarkError, NOT_DETERMINISTIC if a call gives other outputs
    the second time.
    """
    one, state, first = _draw(reference)
    own_output = reference.own_output
    other, second, again = _draw(reference, 1)
    _same_structure({**one, **state}, {**other, **second})
    facts = [_facts(name, "input", one[name], other[name]) for name in one]
    static = [_facts(name, "param", tensor, second[name]) for name, tensor in state.items()]
    spread = _constant_parameters(reference, static, state)
    facts += [
        replace(fact, how="normal", numbers=(float(state[fact.name].flatten()[0]), 0.1))
        if fact.name in spread
        else fact
        for fact in static
    ]
    in_place, outputs, distances = _call_twice(reference, one, state, own_output)
    left = distributions.unbounded_inputs(reference, facts, _moved(state), dict(outputs), _device())
    facts = [replace(fact, how="recipe", numbers=(), order=()) if fact.name in left else fact for fact in facts]
    buffers = tuple(name for name in one if _is_buffer(one[name], other[name]) and name not in in_place)
    return Recorded(
        tuple(facts),
        repr(reference.arguments),
        (*in_place, *buffers),
        seeded=first.seeded or again.seeded,
        spread=spread,
        goal=str(getattr(reference, "goal", "speed")),
        notes=(*reference.notes(), *determinism.rounding_note(distances), *_unbounded_note(left)),
        outputs=tuple(str(tensor.dtype).removeprefix("torch.") for _, tensor in outputs),
        indices=positions(outputs, one),
    )


def _moved(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.to(_device()) for name, tensor in state.items()}


def _unbounded_note(names: frozenset[str]) -> list[str]:
    """The sentence that discloses them."""
    return [f"with other statistics the outputs grow without bound: {', '.join(sorted(names))}"] if names else []


def _constant_parameters(
    reference: Reference, facts: Sequence[TensorFacts], state: Mapping[str, Any]
) -> tuple[str, ...]:
    """Names of learnt parameters that begin with one value throughout, such as the weight of a norm."""
    constant = [
        fact.name
        for fact in facts
        if fact.how == "fixed" and state[fact.name].is_floating_point() and state[fact.name].numel()
    ]
    learnt = reference.learnt() if constant else frozenset[str]()  # makes the whole model once more
    return tuple(name for name in constant if name in learnt)


def _draw(reference: Reference, number: int = 0) -> tuple[dict[str, Any], dict[str, Any], Draws]:
    """Inputs and static tensors of one draw; stores the structure of the arguments in the reference.

    number: the seed, so that a problem has the same specification each time, and the content of unwritten memory.
    """
    tensors: dict[str, Any] = {}
    with seeded(number, _device(), number) as draws:
        reference.arguments = reference.named(on_device(reference.draw, _device()), tensors)
        state = {name: tensor.detach() for name, tensor in on_device(reference.state, _device()).items()}
    if not tensors:
        raise BenchmarkError(
            "NO_INPUTS",
            "The benchmarked call takes no tensors: the harness has nothing to renew for each call.",
            "Pass tensors as arguments instead of keeping them in a closure or a global.",
        )
    return tensors, state, draws


def _is_buffer(one: Any, other: Any) -> bool:
    """Return True for memory that the recipe left unwritten, filled with zeros in one draw and with ones in the other:
    it is meant for an output.
    """
    return bool(one.numel()) and bool((one == 0).all()) and bool((other == 1).all())


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _same_structure(drawn: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    shapes = [{name: (tuple(t.shape), t.dtype) for name, t in draw.items()} for draw in (drawn, other)]
    if shapes[0] != shapes[1]:
        raise BenchmarkError(
            "SHAPES_VARY", "The recipe makes tensors of other names, shapes or types each time.", "Fix the shapes."
        )


def _facts(name: str, role: str, drawn: Any, other: Any) -> TensorFacts:
    how, numbers = distributions.fit(drawn, other)
    order = _order(drawn)
    if order is None:
        how, numbers, order = "recipe" if how != "fixed" else how, (), ()
    dtype = str(drawn.dtype).removeprefix("torch.")
    if dtype.startswith("float8"):  # has no arithmetic to scale a draw
        how, numbers, order = "recipe", (), ()
    return TensorFacts(name, role, dtype, tuple(drawn.shape), how, numbers, order)


def _order(tensor: Any) -> tuple[int, ...] | None:
    """Axes by descending stride if the tensor is dense, () if it is contiguous, None if it has gaps."""
    if tensor.is_contiguous():
        return ()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis)))
    return order if tensor.permute(order).is_contiguous() else None


def _call_twice(
    reference: Reference, inputs: dict[str, Any], state: dict[str, Any], own_output: Any
) -> tuple[tuple[str, ...], list[tuple[str, Any]], list[float]]:
    """Names of the inputs that a call changes, the outputs by name, and their distances from those of another call.

    Raises BenchmarkError for outputs that are undefined, differ by more than rounding, or are not tensors.
    """
    import torch

    outputs, changed, named, static = [], [], list[tuple[str, Any]](), dict[str, Any]()
    for at in range(3 if reference.alike else 2):  # the third time the same module, which may keep a state
        given = {name: tensor.to(_device(), copy=True) for name, tensor in inputs.items()}
        if at < 2:
            static = {name: tensor.to(_device(), copy=True) for name, tensor in state.items()}
        begin_s = time.monotonic()
        program = partial(reference.run, **given, **static)
        returned = program() if at else determinism.without_overwriting(program)
        outputs.append([tensor.clone() for tensor in _tensors(returned)])
        named = flatten(returned)
        changed = [name for name in inputs if not _equal(given[name], inputs[name].to(given[name].device))]
        _refuse_slow(time.monotonic() - begin_s)
    others = [tensor for again in outputs[1:] for tensor in again]
    firsts = outputs[0] * (len(outputs) - 1)
    distances = [determinism.distance(first, other) for first, other in zip(firsts, others, strict=True)]
    if not all(determinism.is_rounding(share, tensor.dtype) for share, tensor in zip(distances, firsts, strict=True)):
        raise BenchmarkError(
            "NOT_DETERMINISTIC",
            "Two calls differ, as with dropout, a state or layers made in a call: nothing can be compared.",
            "Make the problem deterministic, such as with eval() or p=0, or by passing what it draws as inputs.",
        )
    if own_output is not None and not torch.allclose(outputs[0][0], own_output.to(outputs[0][0]), rtol=1e-2):
        raise BenchmarkError(
            "DERIVED_STATE",
            "With its inputs replaced, the problem gives a different output: it stores something derived from them.",
            "Name every tensor that setup() makes from random values among the payload's inputs.",
        )
    return tuple(changed), named, distances


def _refuse_slow(seconds: float) -> None:
    """Raise BenchmarkError TOO_SLOW for a call that no comparison could repeat often enough."""
    if seconds > CALL_S:
        raise BenchmarkError(
            "TOO_SLOW",
            f"One call of the problem takes {seconds:.0f} s, and a comparison makes dozens of them.",
            "Choose a smaller size, such as --set SEQUENCE=512.",
        )


def positions(outputs: list[tuple[str, Any]], inputs: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Integer outputs that point at another output's values within an input, such as those of topk and sort.

    By name, as in bench.Tolerance.indices. With ties, any order of them is right.
    """
    by_name = {}
    for name, indices in outputs:
        for other, values in outputs:
            if indices.dtype.is_floating_point or other == name or values.shape != indices.shape:
                continue
            for source, tensor in inputs.items():
                if (dim := _points_along(indices, values, tensor.to(values.device))) is not None:
                    by_name[name] = source, dim
    return by_name


def _points_along(indices: Any, values: Any, source: Any) -> int | None:
    """The dimension along which the positions pick exactly these values from the source."""
    if source.dim() != indices.dim() or source.dtype != values.dtype or not indices.numel() or not indices.dim():
        return None
    for dim in range(source.dim()):
        others = [at for at in range(source.dim()) if at != dim]
        fits = all(source.shape[at] == indices.shape[at] for at in others)
        inside = int(indices.min()) >= 0 and int(indices.max()) < source.shape[dim]
        if fits and inside and bool((source.gather(dim, indices.long()) == values).all()):
            return dim
    return None


def _tensors(output: Any) -> list[Any]:
    import torch

    values = list(output.values()) if isinstance(output, dict) else output
    values = list(values) if isinstance(values, tuple | list) else [values]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        kinds = ", ".join(sorted({type(value).__name__ for value in values})) or "nothing"
        raise BenchmarkError("BAD_OUTPUT", f"The problem returns {kinds}; only tensors can be compared.")
    return [value.double() if value.is_floating_point() and value.itemsize < 4 else value for value in values]


def _equal(first: Any, other: Any) -> bool:
    return bool(((first == other) | ((first != first) & (other != other))).all())


if __name__ == "__main__":
    sys.exit(main())
