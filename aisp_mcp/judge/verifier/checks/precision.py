"""The precision of answers that are Python values, where a checker of the user's own accepts a lower one.

float32 in place of float64 leaves its mark in two ways: every number of the answer is one of float32, or the answer
agrees with the baseline's to about 7 digits, where another order of operations leaves 12 or more. The second mark is
also that of a solver that stops early, so it is told as what it is: a number of digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aisp_mcp.judge.evidence import APART, NOT_SINGLE
from aisp_mcp.judge.protocol.values import Record
from aisp_mcp.judge.verifier.checks.values import LARGEST

BITS = 16  # a number with fewer is as likely exact, such as 0.5, as it is rounded


def measures(expected: Any, found: Any) -> dict[str, float]:
    """Measures of an accepted answer: NOT_SINGLE is 0 if all its numbers are of float32 and the baseline's are not;
    APART is the largest difference as a share of the largest value of its array, if both have the same shapes.
    """
    own, others = [*_numbers(expected)], [*_numbers(found)]
    if not own or not others:
        return {}
    shapes = [[each.size for each in arrays] for arrays in (own, others)]
    apart = {APART: max(map(_apart, own, others))} if shapes[0] == shapes[1] else {}
    return {NOT_SINGLE: float(_are_single(own) or not _are_single(others) or not _are_rounded(others)), **apart}


def _numbers(value: Any) -> Iterator[Any]:
    """The floats in a value as arrays of float64, complex ones as pairs; keys in one order."""
    import numpy

    if isinstance(value, Record):
        value = vars(value)
    if hasattr(value, "tocsr"):
        value = value.tocsr().data
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) is not None:
        if value.dtype.kind in "fc" and value.size:
            wide = numpy.ascontiguousarray(value, "complex128" if value.dtype.kind == "c" else "float64")
            yield wide.reshape(-1).view("float64")
    elif isinstance(value, float | complex):
        yield numpy.array([value]).view("float64")
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            yield from _numbers(value[key])
    elif isinstance(value, list | tuple):
        kinds = set(map(type, value))
        is_large = any(type(item) is int and abs(item) >= LARGEST for item in value)
        if kinds & {float, complex} and kinds <= {float, complex, int} and not is_large:
            yield numpy.array(value, "complex128" if complex in kinds else "float64").view("float64")
        else:
            for item in value:
                yield from _numbers(item)


def _apart(expected: Any, found: Any) -> float:
    import numpy

    usable = numpy.isfinite(expected) & numpy.isfinite(found)
    largest = float(numpy.abs(expected[usable]).max(initial=0.0))
    return float(numpy.abs(found - expected)[usable].max(initial=0.0)) / largest if largest else 0.0


def _are_single(arrays: list[Any]) -> bool:
    import numpy

    return all(numpy.array_equal(each, each.astype("float32"), equal_nan=True) for each in arrays)


def _are_rounded(arrays: list[Any]) -> bool:
    """Return True if most of the numbers that are not whole need more than BITS bits, as results of rounding do."""
    import numpy

    every = numpy.concatenate(arrays)
    parts = every[numpy.isfinite(every) & (every != numpy.rint(every))]
    mantissas = numpy.frexp(parts)[0] * 2.0**BITS
    return bool(parts.size) and bool((mantissas != numpy.rint(mantissas)).mean() > 0.5)
