"""Answers that are any Python values: compared with the baseline's, or shown to the user's own checker."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aisp_mcp.bench import Answers, Benchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.values import Record, decode, unframed

OWN = "aisp_own_"  # begins the names of the modules of the user's generator and checker
POSITION = re.compile(r"\[\d+\]")  # in a list
LARGEST = 1 << 1023  # of integers that are compared with floats: larger ones may have no float64
Check = Callable[[Any, Any, Any], str | None]


class Floats(NamedTuple):
    """Two floats, or arrays of them, at one place of two values. keys: of a dict, to which they belong."""

    at: str
    expected: Any
    found: Any
    keys: tuple[Any, ...] = ()


def checked(answers: Answers) -> Check:
    """The comparison that a specification asks for: of (arguments, expected, found), a message or None."""
    if answers.check is not None:
        check = own(*answers.check)
        return _without_nan(check) if answers.refuses_nan else check
    return lambda _, expected, found: difference(expected, found, answers.rtol, answers.atol)


def _without_nan(check: Check) -> Check:
    """The checker, which gets no answer with a NaN where the baseline's has none."""

    def checked(arguments: Any, expected: Any, found: Any) -> str | None:
        if has_nan(found) and not has_nan(expected):
            return "it has NaN where the baseline's answer has none"
        return check(arguments, expected, found)

    return checked


def has_nan(value: Any) -> bool:
    """Return True if one of the numbers in a value is NaN."""
    import numpy

    if isinstance(value, Record):
        value = vars(value)
    if hasattr(value, "tocsr"):
        value = value.tocsr().data
    if _is_array(value):
        return value.dtype.kind in "fc" and bool(numpy.isnan(value).any())
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple | set):
        if set(map(type, value)) <= {float, int, complex, bool}:
            return any(map(operator.ne, value, value))
        return any(map(has_nan, value))
    return isinstance(value, float | complex) and value != value


def given(spec: Benchmark, inputs: dict[str, Any]) -> Any:
    """What a checker gets as the arguments: the only one, or a tuple of all."""
    args, kwargs = spec.run.steps.arguments(**inputs)  # type: ignore[attr-defined]
    every = (*args, *kwargs.values())
    return every[0] if len(every) == 1 else every


def loaded(path: str, name: str) -> Any:
    """A function of the user's file, loaded once under a name of its own. Raises BenchmarkError."""
    module_name = f"{OWN}{Path(path).stem}"
    module = sys.modules.get(module_name)
    if module is None or getattr(module, "__file__", "") != path:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        folder = str(Path(path).parent)
        sys.path[:0] = [folder] if folder not in sys.path else []
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise BenchmarkError("OWN_FILE", f"{Path(path).name} cannot be loaded: {where(error, path)}.") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise BenchmarkError("OWN_FILE", f"{Path(path).name} has no function {name!r}.")
    return function


def where(error: BaseException, path: str) -> str:
    """The error in words, with the line of the user's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    line = f" in line {lines[-1]} of {Path(path).name}" if lines else ""
    return f"{type(error).__name__}{line}: {str(error)[:200]}"


def own(path: str, name: str) -> Check:
    """The user's checker, which gets what the generator made and an answer; the baseline's too if it takes three."""
    function = loaded(path, name)
    try:
        takes = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        takes = 2

    def check(arguments: Any, expected: Any, found: Any) -> str | None:
        try:
            verdict = function(arguments, found, expected) if takes > 2 else function(arguments, found)
        except Exception as error:
            raise BenchmarkError("CHECKER_RAISED", f"{name} raised {where(error, path)}.") from error
        returned = "" if isinstance(verdict, bool) else f": it returned {shown(verdict)}, not True"
        return None if bool(verdict) else f"{name} of {Path(path).name} refused it{returned}"

    return check


def difference(expected: Any, found: Any, rtol: float | None = None, atol: float | None = None) -> str | None:
    """The first difference in words, or None. Only floats may differ: by atol + rtol times the expected value."""
    for place in _compared(expected, found, ""):
        if isinstance(place, str):
            return place
        if message := apart(place, rtol or 0.0, atol or 0.0):
            return message
    return None


def floats(expected: Any, found: Any) -> dict[str, Floats] | str:
    """The floats of two values, by place. Those that have the same place in the items of a list are one array: numbers
    its elements, and arrays of one kind its rows. If the values differ in anything else, the first difference in words.
    """
    import numpy

    numbers, arrays = dict[str, list[tuple[Any, Any]]](), dict[str, list[Floats]]()
    for place in _compared(expected, found, ""):
        if isinstance(place, str):
            return place
        at = POSITION.sub("[…]", place.at)
        if not _is_array(place.expected):
            numbers.setdefault(at, []).append((place.expected, place.found))
        else:
            kind = place.expected
            arrays.setdefault(f"{at} of {'x'.join(map(str, kind.shape)) or 1} {kind.dtype}", []).append(place)
    places = {at: Floats(at, *map(_as_array, zip(*pairs, strict=True))) for at, pairs in numbers.items()}
    for at, [first, *more] in arrays.items():
        if more:
            rows = [first, *more]
            places[at] = Floats(
                at, numpy.stack([each.expected for each in rows]), numpy.stack([each.found for each in rows])
            )
        else:
            places[first.at] = first
    return places


def read(frame: Any) -> Any:
    """The value that a frame of bytes holds. Raises ValueError."""
    data = unframed(frame.numpy().tobytes())
    if data is None:
        raise ValueError(f"it takes more than {frame.numel()} bytes")
    return decode(data)


def numbers(output: Any, own: Any) -> dict[str, Any]:
    """The floats of a baseline's output on moved inputs as tensors, by their places in its own output, whose
    floats they are where the outputs differ in anything else. Both are frames of one tensor.
    """
    output, own = (flatten(each)[0][1] for each in (output, own))
    mine = read(own)
    places = floats(mine, mine)
    assert not isinstance(places, str)
    try:
        found = floats(mine, read(output))
    except ValueError:
        found = ""
    moved = {} if isinstance(found, str) else found
    return {at: as_tensor(moved.get(at, place).found) for at, place in places.items()}


def as_tensor(array: Any) -> Any:
    """The array as a tensor; floats of more than 64 bits in 64."""
    import torch

    if array.dtype.name.startswith(("longdouble", "float128", "clongdouble", "complex256")):
        array = array.astype("complex128" if array.dtype.kind == "c" else "float64")
    return torch.from_numpy(array)


def _compared(expected: Any, found: Any, at: str) -> Iterator[str | Floats]:
    """Differences in words, and pairs of floats or of arrays of them."""
    where = f" at {at}" if at else ""
    if _is_array(expected) or _is_array(found):
        yield from _arrays(expected, found, at, where)
    elif _is_number(expected) and _is_number(found):
        if not (isinstance(expected, int) and isinstance(found, int)):
            yield Floats(at, expected, found)
        elif expected != found:
            yield f"{shown(found)}{where} is not {shown(expected)}"
    elif hasattr(expected, "tocsr") and hasattr(found, "tocsr"):  # in whichever format
        one, other = expected.tocsr(), found.tocsr()
        for name in ("shape", "indptr", "indices", "data"):
            yield from _compared(getattr(one, name), getattr(other, name), f"{at}.{name}" if at else name)
    elif _kind(expected) != _kind(found):
        yield f"{shown(found)}{where} is a {_kind(found)}, the baseline's is a {_kind(expected)}"
    elif isinstance(expected, list | tuple):
        if len(expected) != len(found):
            yield f"{len(found)} items{where}, the baseline has {len(expected)}"
        elif _are_floats(expected) and _are_floats(found):
            yield Floats(at, _as_array(expected), _as_array(found))
        else:
            for index, pair in enumerate(zip(expected, found, strict=True)):
                yield from _compared(*pair, f"{at}[{index}]")
    elif isinstance(expected, Record):
        yield from _compared(vars(expected), vars(found), at)
    elif isinstance(expected, dict):
        for key in expected.keys() ^ found.keys():
            yield f"the key {key!r}{where} is only in {'the baseline' if key in expected else 'this answer'}"
            return
        found = {key: found[key] for key in expected}
        if _are_floats([*expected.values()]) and _are_floats([*found.values()]):
            yield Floats(at, _as_array(expected.values()), _as_array(found.values()), tuple(expected))
            return
        for key in expected:
            yield from _compared(expected[key], found[key], f"{at}[{key!r}]")
    elif hasattr(expected, "adj"):
        both = expected, found
        for name in ("nodes", "edges"):
            one, other = (dict(graph.nodes(data=True) if name == "nodes" else _edges(graph)) for graph in both)
            yield from _compared(one, other, f"{at}.{name}" if at else name)
    elif expected != found:
        yield f"{shown(found)}{where} is not {shown(expected)}"


def _edges(graph: Any) -> Mapping[Any, Any]:
    if graph.is_multigraph():
        return {tuple(edge[:3]): edge[3] for edge in graph.edges(keys=True, data=True)}
    if graph.is_directed():
        return {tuple(edge[:2]): edge[2] for edge in graph.edges(data=True)}
    return {frozenset(edge[:2]): edge[2] for edge in graph.edges(data=True)}


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _is_empty(value: Any) -> bool:
    return bool(value.shape == (0,) if _is_array(value) else value == [])


def _are_floats(values: Any) -> bool:
    """Return True for numbers that are compared by the size of all of them."""
    return any(type(item) is float for item in values) and all(
        type(item) is float or (type(item) is int and abs(item) < LARGEST) for item in values
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, float | complex)


def _kind(value: Any) -> str:
    return vars(value)["__kind__"] if isinstance(value, Record) else type(value).__name__


def shown(value: Any, most: int = 80) -> str:
    """The value in a message, cut to so many characters."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python shows no integer of so many digits
        size = f"of {value.bit_length()} bits" if isinstance(value, int) else "with a very large integer"
        return f"{type(value).__name__} {size}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _as_array(values: Iterable[Any]) -> Any:
    import numpy

    numbers = [*values]
    return numbers and numpy.array(numbers, "complex128" if complex in {*map(type, numbers)} else "float64")


def _arrays(expected: Any, found: Any, at: str, where: str) -> Iterator[str | Floats]:
    import numpy

    if _is_empty(expected) and _is_empty(found):  # one of objects is a list here
        return
    if not (_is_array(expected) and _is_array(found)):
        yield f"{shown(found)}{where} is a {_kind(found)}, the baseline's is a {_kind(expected)}"
    elif expected.shape != found.shape:
        yield f"an array{where} has the shape {found.shape}, the baseline's {expected.shape}"
    elif expected.dtype.names or found.dtype.names:
        if expected.dtype.names != found.dtype.names:
            yield f"an array{where} has the fields {found.dtype.names}, the baseline's {expected.dtype.names}"
            return
        for name in expected.dtype.names:
            yield from _arrays(expected[name], found[name], f"{at}[{name!r}]", f" at {at}[{name!r}]")
    elif not expected.size:  # of no elements, the type is often chance, as of numpy.array([])
        return
    elif expected.dtype.kind in "fc" and found.dtype.kind in "fc":
        yield Floats(at, expected, found)
    elif expected.dtype.kind != found.dtype.kind:
        yield f"an array{where} is of {found.dtype}, the baseline's of {expected.dtype}"
    elif not numpy.array_equal(expected, found, equal_nan=expected.dtype.kind in "mM"):
        yield f"{int((expected != found).sum())} of {expected.size} elements of an array{where} differ"


def apart(place: Floats, rtol: float = 0.0, atol: float = 0.0) -> str | None:
    """The difference of floats that are further apart than allowed, or None."""
    import numpy

    where = f" at {place.at}" if place.at else ""
    wide = [numpy.asarray(values, "complex128") for values in (place.expected, place.found)]
    same = (wide[0] == wide[1]) | (numpy.isnan(wide[0]) & numpy.isnan(wide[1]))
    sizes = numpy.where(numpy.isfinite(wide[0]), numpy.abs(wide[0]), 0.0)
    with numpy.errstate(invalid="ignore"):  # of infinite numbers
        distances = numpy.where(same, 0.0, numpy.abs(wide[1] - wide[0]))
    wrong = ~(distances <= atol + rtol * sizes)
    if not wrong.any():
        return None
    if not wrong.ndim:
        return f"{place.found!r}{where} is not {place.expected!r}"
    first = tuple(int(index) for index in numpy.argwhere(wrong)[0])
    found, expected = (values[first] for values in (place.found, place.expected))
    if place.keys:
        return f"{found}{where} at {place.keys[first[0]]!r} is not {expected}"
    return (
        f"{int(wrong.sum())} of {wrong.size} elements{where} differ, the first at {list(first)}: "
        f"{found} is not {expected}"
    )
