"""The API of generated pairs: load the user's function in a measuring process, and turn its result into tensors."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib
import inspect
import os
import pickle
import sys
from array import array
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Integral
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from aisp_mcp.judge.candidate.adapted import unwatched
from aisp_mcp.judge.protocol import values
from aisp_mcp.judge.protocol.changes import first_change
from aisp_mcp.judge.protocol.module_loader import load_module, unusable

# Bound before any program is loaded: one that replaced them would skip a conversion that the baseline pays for.
_TO_ARRAY, _TO_LIST = torch.Tensor.numpy, torch.Tensor.tolist
# Whether a call has returned a list, tuple or dict without arrays, and whether arrays have to become lists.
LISTS = {"seen": False, "demanded": False}
_INT64 = 1 << 63
_WIDE = dict[Callable[..., Any], Callable[..., Any]]()  # with modules in float64
_LONG = "Return its text; or give a tolerance such as --rtol 1e-9, which compares answers of any form."  # a hint
_DTYPES = {float: torch.float64, complex: torch.complex128}  # of a number that is not torch's own choice
_LABELS = "Return it with reset_index(drop=True), as the baseline does."
MODULES = {"widened": True}  # whether a reference gets modules in float64
_SEED = 1  # any, and the same for baseline and candidate

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}  # by process

_FRAMES: list[bytearray] = []  # large ones that have been made

VALUES: dict[str, Any] = {"capacity": 0, "plain": False}  # of the frames of outputs: their bytes, and is_plain()


class Steps(NamedTuple):
    """The steps of a generated pair's `run`, of which only the function's own is timed: the arguments of a call from
    its inputs, as (args, kwargs), the user's function, and its output as tensors. is_copied: an argument is no view of
    its input, so it must be made again when that has new values.
    """

    arguments: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    function: Callable[..., Any]
    is_copied: bool

    def tensors(self, output: Any) -> Any:
        """tensors() of the output of one call."""
        return tensors(output)

    def whole(self, *args: Any, **kwargs: Any) -> Any:
        """The function and the conversion of its output, where that counts as part of it: it may take as long."""
        return self.tensors(self.function(*args, **kwargs))

    def listed(self, *args: Any, **kwargs: Any) -> Any:
        """The function, and lists in place of its arrays."""
        return _listed(self.function(*args, **kwargs))

    def becomes_list(self, output: Any) -> bool:
        """Return True for arrays where the baseline returns lists."""
        return LISTS["demanded"] and _holds_arrays(output)

    def tensors_of_calls(self, outputs: list[Any]) -> Any:
        """tensors() of the output of each call; of numbers, one tensor of all of them."""
        # One by one takes microseconds, which a candidate could save.
        kinds = {*map(type, outputs)}
        if kinds == {torch.Tensor} and all([output.layout is torch.strided for output in outputs]):
            return outputs
        if kinds == {float}:
            return torch.frombuffer(array("d", outputs), dtype=torch.float64)
        if kinds == {int} and max(map(abs, outputs)) < _INT64:
            return torch.frombuffer(array("q", outputs), dtype=torch.int64)
        if len(kinds) == 1 and _is_array(outputs[0]) and outputs[0].ndim:
            return [*map(_from_array, outputs)]
        return [*map(tensors, outputs)]

    def is_done(self, output: Any) -> bool:
        """Return True for an output that holds no work that is still to do: a tensor, an array, or a value of Python's
        own types. Its conversion is no part of a call's time.
        """
        if isinstance(output, torch.Tensor) or _is_array(output):
            return bool(getattr(output, "layout", torch.strided) == torch.strided)
        return values.is_plain(output)


class ValueSteps(Steps):
    """The same where outputs are any Python values, which become frames of bytes."""

    __slots__ = ()

    def tensors(self, output: Any) -> Any:
        _note_lists(output)
        try:
            data = values.encode(_listed(output) if LISTS["demanded"] else output)
        except values.UnknownValueError as error:
            raise unusable(
                "BAD_OUTPUT", f"The function's answer cannot be compared: {error}.", values.RETURN
            ) from error
        return torch.frombuffer(_frame(data), dtype=torch.uint8)

    def tensors_of_calls(self, outputs: list[Any]) -> Any:
        if not all(map(values.is_plain, outputs)):
            raise unusable("BAD_OUTPUT", "The function returned a value of another type than in its first calls.")
        return [*map(self.tensors, outputs)]

    def is_done(self, output: Any) -> bool:
        return bool(VALUES["plain"]) and values.is_plain(output)


def _frame(data: bytes) -> bytearray:
    """The bytes in a frame: a large one in memory that no output uses any more. New memory beyond what glibc keeps
    comes from the kernel page by page: 25 of 35 ms for an answer of 32 MB, and by chance only in some processes.
    """
    capacity = VALUES["capacity"] or len(data) + values.HEAD
    if capacity < values.LARGE:
        return values.framed(data, capacity)
    alone = sys.getrefcount(object()) + 1  # references of a frame that only the list holds
    free = (at for at in range(len(_FRAMES)) if sys.getrefcount(_FRAMES[at]) == alone and len(_FRAMES[at]) == capacity)
    if (at := next(free, None)) is not None:
        return values.framed(data, capacity, _FRAMES[at])
    _FRAMES.append(values.framed(data, capacity))
    return _FRAMES[-1]


def function(path: str, name: str, folders: tuple[str, ...] = (), module: str = "") -> Callable[..., Any]:
    """The function of that name in the file, or in the named module of the package. Of a class whose instances can be
    called, an instance that is made without arguments, and under one seed. A coroutine function is run to its end.

    folders: searched first by what the file imports. Raises BenchmarkError NO_FUNCTION, and whatever the file raises.
    """
    LISTS["seen"] = False
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    stem = Path(path).stem
    loaded = importlib.import_module(module) if module else load_module(Path(path), f"aisp_function_{stem}")
    attribute = getattr(loaded, name, None)
    if inspect.isclass(attribute) and any("__call__" in vars(base) for base in attribute.__mro__):
        torch.manual_seed(_SEED)  # or the weights of a module would be others in each process
        attribute = attribute()
    if not callable(attribute):
        is_what = f": that name is a {type(attribute).__name__}" if hasattr(loaded, name) else ""
        hint = "Put the code into a function that returns its result, and name it: FILE:FUNCTION."
        raise unusable("NO_FUNCTION", f"{stem} has no function {name!r}{is_what}.", hint)
    result: Callable[..., Any] = _awaited(attribute) if inspect.iscoroutinefunction(attribute) else attribute
    return result


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs the coroutine to its end."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        # A new loop takes 0.1 ms, which no program pays for each of its awaits; a fork cannot use its parent's.
        if (loop := _LOOPS.get(os.getpid())) is None:
            loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
        return loop.run_until_complete(function(*args, **kwargs))

    return run


def in_default_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; while float64 is torch's default type, as it is for references, with the modules that it is or that
    its file holds in float64. What a program has computed from them before, it keeps.
    """
    is_reference = torch.get_default_dtype() == torch.float64 and MODULES["widened"]
    if not is_reference or not isinstance(function, Hashable):  # an instance of a dataclass
        return function
    if function not in _WIDE:
        with unwatched():
            _WIDE[function] = _wide(function)
    return _WIDE[function]


def keep_modules_narrow() -> None:
    """Let operations widen the tensors of modules instead: copies in float64 do not fit into memory."""
    MODULES["widened"] = False
    _WIDE.clear()


class _Beside(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A function and the modules that it may call, as one module."""

    def __init__(self, function: Callable[..., Any], modules: list[torch.nn.Module]) -> None:
        super().__init__()
        self.modules_of_file, self.forward = torch.nn.ModuleList(modules), function


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    modules = [value for value in names.values() if isinstance(value, torch.nn.Module)]
    whole = function if isinstance(function, torch.nn.Module) else _Beside(function, modules)
    tensors = {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    if not tensors:
        return function
    wide = {
        name: tensor.detach().to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in tensors.items()
    }
    for name, tensor in wide.items():
        tensor.requires_grad_(tensors[name].requires_grad)
    return lambda *args, **kwargs: torch.func.functional_call(whole, wide, args, kwargs)


def arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def with_values(run: Callable[..., Any], is_made: bool) -> Callable[..., Any]:
    """The `run` of a pair whose answers are any Python values. is_made: a generator makes its arguments."""
    own = getattr(run, "steps", None)
    steps = ValueSteps(*own) if own else ValueSteps(made_arguments if is_made else arguments, run, is_made)

    def answer(**inputs: Any) -> Any:
        return answered(steps, **inputs)

    answer.steps = steps  # type: ignore[attr-defined]
    return answer


def with_left(run: Callable[..., Any], left: Mapping[str, int]) -> Callable[..., Any]:
    """The `run` of such a pair, whose answer also has the content of these arguments after the call. left: their
    positions by name.
    """
    if not left:
        return run
    steps: ValueSteps = run.steps  # type: ignore[attr-defined]

    @functools.wraps(steps.function)
    def function(*args: Any, **kwargs: Any) -> dict[str, Any]:
        returned, given = steps.function(*args, **kwargs), (*args, *kwargs.values())
        return {"returned": returned, **{f"{name} {values.AFTERWARDS}": given[at] for name, at in left.items()}}

    return with_values(SimpleNamespace(steps=steps._replace(function=function)), False)  # type: ignore[arg-type]


def changes(before: tuple[Any, Any], after: tuple[Any, Any]) -> dict[int, str]:
    """Places at which the arguments of a call differ from the same arguments made anew, by the argument's position;
    those by keyword come last.
    """
    pairs = zip(*((*args, *kwargs.values()) for args, kwargs in (before, after)), strict=True)
    places = {at: first_change(one, other) for at, (one, other) in enumerate(pairs)}
    return {at: place for at, place in places.items() if place is not None}


def argument_name(function: Callable[..., Any], given: tuple[Any, Any], at: int) -> str:
    """The name of the argument at that position in a call of the function."""
    args, kwargs = given
    if at >= len(args):
        return str([*kwargs][at - len(args)])
    try:
        names = [*inspect.signature(function).parameters]
    except ValueError:  # a function that is not written in Python
        names = []
    return names[at] if at < len(names) else f"argument {at}"


def answered(steps: Steps, **inputs: Any) -> Any:
    """The output of a call on these inputs, as tensors."""
    args, kwargs = steps.arguments(**inputs)
    return steps.tensors(steps.function(*args, **kwargs))


def made_arguments(made: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that a generator made: several if that is a tuple."""
    value = as_value(made)
    return (value if type(value) is tuple else (value,)), {}


def as_value(frame: torch.Tensor) -> Any:
    """The Python value that the harness drew, made anew."""
    return pickle.loads(values.unframed(_TO_ARRAY(frame).tobytes()) or b"")


def as_array(tensor: torch.Tensor) -> Any:
    """The tensor as an array of numpy, in the same memory."""
    return _TO_ARRAY(tensor)


def as_list(tensor: torch.Tensor) -> Any:
    """The tensor as a list of Python's numbers, nested by its dimensions."""
    return _TO_LIST(tensor)


def tensors(output: Any) -> Any:
    """The output as tensors: arrays, numbers, lists of floats, and tuples and dicts of these as themselves; texts,
    sets, records, and lists of integers or of anything else as a hash of what must be equal, and the floats and arrays
    among them in order. Numbers of numpy in lists are Python's. Where the baseline returns lists, arrays become lists
    first, as their user would have to do. Raises BenchmarkError BAD_OUTPUT.
    """
    _note_lists(output)
    if LISTS["demanded"]:
        output = _listed(output)
    if isinstance(output, bool | int | float | complex):
        if isinstance(output, int) and not -_INT64 <= output < _INT64:
            raise unusable("LARGE_INTEGER", "The function returned an integer of more than 64 bits.", _LONG)
        return torch.tensor(output, dtype=next((_DTYPES[kind] for kind in _DTYPES if isinstance(output, kind)), None))
    if values.is_masked(output):
        return {name: _from_array(part) for name, part in values.unmasked(output).items()}
    if isinstance(output, torch.Tensor) or _is_array(output):
        return _as_tensor(output)
    library = _library(output)
    if library in ("pandas", "polars"):
        return _columns(output)
    if library == "scipy" and hasattr(output, "toarray"):
        return torch.as_tensor(output.toarray())
    if isinstance(output, dict) and output and all(map(_is_whole, output.values())):
        return {str(key): _as_tensor(value) for key, value in output.items()}
    if isinstance(output, list | tuple) and output:
        kinds = {*map(type, output)}  # each step per element counts as time of the call
        if any(map(_is_single, kinds)):
            output = _with_own_numbers(output, len(kinds) == 1)
            kinds = {*map(type, output)}
        are_numbers = bool not in kinds and all(issubclass(kind, complex | float | int) for kind in kinds)
        if are_numbers and not all(issubclass(kind, int) for kind in kinds):
            if any(issubclass(kind, complex) for kind in kinds):
                return torch.tensor(output, dtype=torch.complex128)
            with suppress(OverflowError):  # of an integer that is too large
                return torch.frombuffer(array("d", output), dtype=torch.float64)
            return _encoded(output)
        if kinds == {int} and isinstance(output, list):
            with suppress(OverflowError):
                return {"hash": _digest(array("q", output).tobytes())}  # as a text takes ten times as long
        elif all(map(_is_whole, output)):
            return tuple(map(_as_tensor, output))
    return _encoded(output)


def _note_lists(output: Any) -> None:
    if not LISTS["seen"]:
        LISTS["seen"] = isinstance(output, list | tuple | Mapping) and not _holds_arrays(output)


def _holds_arrays(value: Any) -> bool:
    """Return True for an array or a tensor, and for lists, tuples and dicts that hold one."""
    if isinstance(value, Mapping):
        return any(map(_holds_arrays, value.values()))
    if isinstance(value, list | tuple):
        return not all(map(values.is_number_or_text, {*map(type, value)})) and any(map(_holds_arrays, value))
    return isinstance(value, torch.Tensor) or (_is_array(value) and not values.is_number_or_text(type(value)))


def _listed(value: Any) -> Any:
    """The value with lists in place of arrays and tensors, and Python's numbers in place of numpy's."""
    if isinstance(value, list | tuple):
        kinds = {*map(type, value)}
        if kinds <= {*values.PLAIN}:
            return value
        return [*map(_listed, value)] if isinstance(value, list) else tuple(map(_listed, value))
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        return _TO_LIST(value)
    return value.tolist() if _is_array(value) else value


def _is_single(kind: type) -> bool:
    """Return True for types of single numbers of numpy that are not Python's own; its float64 and complex128 are."""
    return kind not in values.PLAIN and values.is_number_or_text(kind) and not issubclass(kind, float | complex | str)


def _with_own_numbers(output: list[Any] | tuple[Any, ...], are_alike: bool) -> list[Any] | tuple[Any, ...]:
    """The output with Python's numbers in place of numpy's, but of complex ones; in a tuple, of integers and booleans
    beside Python's own. are_alike: of one type.
    """
    is_list = isinstance(output, list)
    if are_alike and is_list and output[0].dtype.kind in "iu":
        with suppress(OverflowError):
            return array("q", output).tolist()  # in a fifth of the time
    if not is_list and all(map(_is_whole, output)) and not any(isinstance(item, float) for item in output):
        return output
    own = (
        item.item() if _is_single(type(item)) and item.dtype.kind in ("biuf" if is_list else "biu") else item
        for item in output
    )
    return [*own] if is_list else tuple(own)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_array(value: Any) -> bool:
    """Return True for an array without a mask, or a scalar of numpy, that holds numbers."""
    return _library(value) == "numpy" and value.dtype.kind in "biufc" and not values.is_masked(value)


def _from_array(output: Any) -> torch.Tensor:
    """The array as a tensor; a copy of one that torch has no view of, such as a reversed one."""
    try:
        return torch.as_tensor(output)
    except ValueError:
        return torch.as_tensor(output.copy())


def _as_tensor(value: Any) -> torch.Tensor:
    """The tensor of a value that _is_whole() accepts."""
    if isinstance(value, torch.Tensor):
        return value if value.layout == torch.strided else value.to_dense()
    return _from_array(value) if _is_array(value) else tensors(value)


def _is_whole(value: Any) -> bool:
    """Return True for values that are outputs of their own."""
    return isinstance(value, torch.Tensor | float | complex) or _is_array(value)


def _columns(output: Any) -> Any:
    """A series as an array, a frame as arrays by the names of its columns. Raises BenchmarkError LABELLED."""
    if values.labels(output) is not None:
        raise unusable("LABELLED", "The function returned a series or a frame whose labels are not positions.", _LABELS)
    if not hasattr(output, "columns"):
        return tensors(output.to_numpy())
    return {str(name): tensors(output[name].to_numpy()) for name in output.columns}


def _encoded(output: Any) -> dict[str, Any]:
    """A hash of types, structure, integers and texts, which must be equal, and the floats and arrays in order."""
    inner = _Inner()
    text = inner.canonical(output)
    encoded = {"hash": _digest(text.encode("utf-8", "surrogatepass"))}
    if inner.floats:
        encoded["floats"] = torch.tensor(inner.floats, dtype=torch.float64)
    return encoded | {f"array_{at}": found for at, found in enumerate(inner.arrays)}


def _digest(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(hashlib.blake2b(content, digest_size=32).digest()), dtype=torch.uint8)


def _exact(value: Any) -> str:
    """The text of an element of a set or of a key of a dict; numpy's own numbers and texts look different."""
    return repr(value.tolist() if _library(value) == "numpy" else value)


class _Inner:
    """The floats and arrays that a structure contains, in order."""

    def __init__(self) -> None:
        self.floats, self.arrays = list[float](), list[Any]()

    def canonical(self, value: Any) -> str:
        """A text that is the same for equal values but for floats and arrays, which are collected. Those in sets and
        keys of dicts must be equal, too.
        """
        if isinstance(value, float):
            self.floats.append(value)
            return "f"
        if isinstance(value, str):
            return repr(str(value))  # numpy's own texts look different
        if value is None or isinstance(value, bool | bytes):
            return repr(value)
        if isinstance(value, int):
            return hex(value)  # Python shows no decimal digits of the largest
        if not isinstance(value, complex) and values.is_number_or_text(type(value)):  # of numpy
            return self.canonical(value.tolist())
        if _is_whole(value):
            self.arrays.append(_as_tensor(value))
            return "a"
        if isinstance(value, list | tuple):
            return f"{'l' if isinstance(value, list) else 't'}({','.join(map(self.canonical, value))})"
        if isinstance(value, Mapping):
            texts = {_exact(key): item for key, item in value.items()}
            return f"d({','.join(f'{key}:{self.canonical(texts[key])}' for key in sorted(texts))})"
        if isinstance(value, set | frozenset):
            return f"s({','.join(sorted(map(_exact, value)))})"
        if is_dataclass(value) and not isinstance(value, type):
            return f"r({','.join(self.canonical(getattr(value, field.name)) for field in fields(value))})"
        if isinstance(value, Enum):
            return repr(values.member(value))
        return self._of_a_library(value)

    def _of_a_library(self, value: Any) -> str:
        if _library(value) == "numpy":
            return self.canonical(value.tolist())
        if isinstance(value, Integral):  # of a library for algebra
            return hex(int(value))
        if _library(value) in values.SCALARS:
            return repr(value)
        if isinstance(value, range) or hasattr(value, "__next__"):
            return self.canonical(list(value))
        kind = type(value).__name__
        raise unusable("BAD_OUTPUT", f"The function returned a {kind}, which cannot be compared.", values.RETURN)
