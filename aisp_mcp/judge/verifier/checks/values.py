"""Answers that are any Python values: compared with the baseline's, or shown to the user's own checker."""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Answers, Benchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.values import Record

# Distance of two floats as a share of the larger of their size and, in an array, the array's: another order of
# operations leaves less, and float32 in place of float64 a hundred times as much.
CLOSE = {"f8": 1e-9, "f4": 1e-4, "f2": 1e-2}
OWN = "aisp_own_"  # begins the names of the modules of the user's generator and checker
Check = Callable[[Any, Any, Any], str | None]


def checked(answers: Answers) -> Check:
    """The comparison that a specification asks for: of (arguments, expected, found), a message or None."""
    if answers.check is not None:
        return own(*answers.check)
    return lambda _, expected, found: difference(expected, found, answers.rtol, answers.atol)


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
        return None if bool(verdict) else f"{name} of {Path(path).name} refused it"

    return check


def difference(expected: Any, found: Any, rtol: float | None = None, atol: float | None = None) -> str | None:
    """The first difference in words, or None. Only floats may differ: by atol + rtol times the expected value, or
    without either by little more than the order of operations explains.
    """
    return next(_differences(expected, found, rtol, atol, ""), None)


def _differences(expected: Any, found: Any, rtol: float | None, atol: float | None, at: str) -> Iterator[str]:
    where = f" at {at}" if at else ""
    if _is_array(expected) or _is_array(found):
        yield from _arrays(expected, found, rtol, atol, where)
    elif _is_number(expected) and _is_number(found):
        if not _are_close(expected, found, rtol, atol):
            yield f"{found!r}{where} is not {expected!r}"
    elif hasattr(expected, "tocsr") and hasattr(found, "tocsr"):  # in whichever format
        one, other = expected.tocsr(), found.tocsr()
        for name in ("shape", "indptr", "indices", "data"):
            place = f"{at}.{name}" if at else name
            yield from _differences(getattr(one, name), getattr(other, name), rtol, atol, place)
    elif _kind(expected) != _kind(found):
        yield f"{_shown(found)}{where} is a {_kind(found)}, the baseline's is a {_kind(expected)}"
    elif isinstance(expected, list | tuple) and _are_floats(expected) and _are_floats(found):
        import numpy

        yield from _arrays(numpy.array(expected, "float64"), numpy.array(found, "float64"), rtol, atol, where)
    elif isinstance(expected, list | tuple):
        if len(expected) != len(found):
            yield f"{len(found)} items{where}, the baseline has {len(expected)}"
            return
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from _differences(*pair, rtol, atol, f"{at}[{index}]")
    elif isinstance(expected, Record):
        yield from _differences(vars(expected), vars(found), rtol, atol, at)
    elif isinstance(expected, dict):
        for key in expected.keys() ^ found.keys():
            yield f"the key {key!r}{where} is only in {'the baseline' if key in expected else 'this answer'}"
            return
        if _are_floats([*expected.values()]) and _are_floats([*found.values()]):
            yield from _by_key(expected, found, rtol, atol, where)
            return
        for key in expected:
            yield from _differences(expected[key], found[key], rtol, atol, f"{at}[{key!r}]")
    elif hasattr(expected, "adj"):
        both = expected, found
        for name in ("nodes", "edges"):
            one, other = (dict(graph.nodes(data=True) if name == "nodes" else _edges(graph)) for graph in both)
            yield from _differences(one, other, rtol, atol, f"{at}.{name}" if at else name)
    elif expected != found:
        yield f"{_shown(found)}{where} is not {_shown(expected)}"


def _by_key(
    expected: dict[Any, float], found: dict[Any, float], rtol: float | None, atol: float | None, where: str
) -> Iterator[str]:
    """The differences of numbers by key, by the size of all of them."""
    import numpy

    one, other = (numpy.array([each[key] for key in expected], "float64") for each in (expected, found))
    for _ in _arrays(one, other, rtol, atol, where):
        key = max(expected, key=lambda key: _apart(expected[key], found[key]))
        yield f"{found[key]!r}{where} at {key!r} is not {expected[key]!r}"


def _apart(one: float, other: float) -> float:
    if one == other or (one != one and other != other):
        return 0.0
    distance = abs(one - other)
    return distance if math.isfinite(distance) else math.inf


def _edges(graph: Any) -> Mapping[Any, Any]:
    if graph.is_multigraph():
        return {tuple(edge[:3]): edge[3] for edge in graph.edges(keys=True, data=True)}
    if graph.is_directed():
        return {tuple(edge[:2]): edge[2] for edge in graph.edges(data=True)}
    return {frozenset(edge[:2]): edge[2] for edge in graph.edges(data=True)}


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _are_floats(values: Any) -> bool:
    """Return True for numbers that are compared by the size of all of them."""
    return (
        bool(values)
        and any(type(item) is float for item in values)
        and all(type(item) in (int, float) for item in values)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return vars(value)["__kind__"] if isinstance(value, Record) else type(value).__name__


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _are_close(expected: complex, found: complex, rtol: float | None, atol: float | None) -> bool:
    if isinstance(expected, int) and isinstance(found, int):
        return expected == found
    if expected == found or (expected != expected and found != found):
        return True
    if not (math.isfinite(abs(expected)) and math.isfinite(abs(found))):
        return False
    if rtol is None and atol is None:
        return abs(expected - found) <= CLOSE["f8"] * max(abs(expected), abs(found))
    return abs(expected - found) <= (atol or 0.0) + (rtol or 0.0) * abs(expected)


def _arrays(expected: Any, found: Any, rtol: float | None, atol: float | None, where: str) -> Iterator[str]:
    import numpy

    if not (_is_array(expected) and _is_array(found)):
        yield f"{_shown(found)}{where} is a {_kind(found)}, the baseline's is a {_kind(expected)}"
    elif expected.shape != found.shape:
        yield f"an array{where} has the shape {found.shape}, the baseline's {expected.shape}"
    elif not expected.size:  # of no elements, the type is often chance, as of numpy.array([])
        return
    elif expected.dtype.kind not in "fc" or found.dtype.kind not in "fc":
        if expected.dtype.kind != found.dtype.kind:
            yield f"an array{where} is of {found.dtype}, the baseline's of {expected.dtype}"
        elif not numpy.array_equal(expected, found):
            yield f"{int((expected != found).sum())} of {expected.size} elements of an array{where} differ"
    else:
        wide = [
            value.astype("complex128" if "c" in (expected.dtype.kind, found.dtype.kind) else "float64")
            for value in (expected, found)
        ]
        same = (wide[0] == wide[1]) | (numpy.isnan(wide[0]) & numpy.isnan(wide[1]))
        apart = numpy.where(same, 0.0, numpy.abs(wide[1] - wide[0]))
        sizes = numpy.where(numpy.isfinite(wide[0]), numpy.abs(wide[0]), 0.0)
        if rtol is None and atol is None:
            part = expected.dtype.itemsize // (2 if expected.dtype.kind == "c" else 1)
            allowed = CLOSE.get(f"f{part}", CLOSE["f8"]) * max(float(sizes.max()), 0.0) + 0.0 * sizes
        else:
            allowed = (atol or 0.0) + (rtol or 0.0) * sizes
        wrong = ~(apart <= allowed)
        if wrong.any():
            first = tuple(int(index) for index in numpy.argwhere(wrong)[0])
            yield (
                f"{int(wrong.sum())} of {expected.size} elements{where} differ, the first at {list(first)}: "
                f"{found[first]!s} is not {expected[first]!s}"
            )
