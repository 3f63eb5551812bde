"""Places at which Python values differ from what they were: an argument after a call from the same one made anew.

As with `==`, the order of a dict's or a set's items does not count, and neither does 1 instead of 1.0. In addition:

| value | no change |
| --- | --- |
| float, array | NaN in the same place |
| iterator, file, random generator | a position that was read on |
| defaultdict | a new key with the default value, which reading it adds |
| sparse matrix | zeros that are stored, and the order of entries |
| instance of a class | a new attribute, such as a cached property; a private one that held no object before |
"""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from aisp_mcp.judge.protocol import values

_NONE_INSIDE = (*values.PLAIN, bytearray, range, Enum, FunctionType, BuiltinFunctionType, ModuleType, type)
_PICKLED = (list, tuple, dict, set, frozenset, deque)
_Pair = tuple[Any, Any, str]  # value before and after, and its place


def first_change(before: Any, after: Any) -> str | None:
    """The place of the first difference, such as `[3]['name']`; empty for the whole value; None without any."""
    if _are_written_alike(before, after):
        return None
    left: list[Iterator[_Pair]] = [iter([(before, after, "")])]
    seen = dict[tuple[int, int], tuple[Any, Any]]()  # of cycles; the values stay alive, so that identities stay theirs
    while left:
        pair = next(left[-1], None)
        if pair is None:
            left.pop()
            continue
        one, other, place = pair
        if one is other or (id(one), id(other)) in seen:
            continue
        if isinstance(one, _NONE_INSIDE):
            if not _is_same(one, other):
                return place
            continue
        seen[id(one), id(other)] = one, other
        if type(one) is not type(other):
            return place
        parts = _parts(one, other, place)
        if parts is None:
            return place
        left.append(parts)
    return None


def _are_written_alike(before: Any, after: Any) -> bool:
    """Return True if both are pickled as the same bytes, as nearly all that are equal are: a walk takes ten times as
    long.
    """
    try:
        return isinstance(before, _PICKLED) and pickle.dumps(before, 5) == pickle.dumps(after, 5)
    except Exception:  # which one depends on the type that cannot be pickled
        return False


def _is_same(one: Any, other: Any) -> bool:
    return isinstance(other, _NONE_INSIDE) and (one == other or (one != one and other != other))


def _parts(one: Any, other: Any, place: str) -> Iterator[_Pair] | None:
    """Pairs of the parts of two values of one type; None if they differ in their number, names or kinds."""
    library = type(one).__module__.partition(".")[0]
    if isinstance(one, Mapping):
        return _items(one, other, place)
    if isinstance(one, list | tuple | deque):
        if len(one) != len(other):
            return None
        return ((a, b, f"{place}[{at}]") for at, (a, b) in enumerate(zip(one, other, strict=True)))
    if isinstance(one, set | frozenset):  # objects with an identity of their own are equal to none that are made anew
        is_same = one == other or (len(one) == len(other) and not all(map(values.is_plain, one)))
        return iter(()) if is_same else None
    if hasattr(one, "__next__"):
        return iter(())
    if library in values.SCALARS or library == "array":
        return iter(()) if one == other else None
    if (name := _LIBRARIES.get(library)) and hasattr(one, name[0]):
        found = name[1](one, other)
        return iter([(*found, place)]) if isinstance(found, tuple) else iter(()) if found else None
    return _attributes(one, other, place)


def _items(one: Mapping[Any, Any], other: Mapping[Any, Any], place: str) -> Iterator[_Pair] | None:
    if isinstance(other, defaultdict) and other.default_factory is not None:
        default = other.default_factory
        other = {key: item for key, item in other.items() if key in one or first_change(default(), item) is not None}
    if len(one) != len(other) or (isinstance(one, OrderedDict) and [*one] != [*other]):
        return None
    if one.keys() == other.keys():
        return ((item, other[key], f"{place}[{key!r}]") for key, item in one.items())
    if all(map(values.is_plain, one)):
        return None
    # Keys that are equal to themselves alone, such as nodes: those made anew have the same order.
    pairs = zip(one.items(), other.items(), strict=True)
    return ((a, b, f"{place}[{a[0]!r}]") for a, b in pairs)


def _attributes(one: Any, other: Any, place: str) -> Iterator[_Pair] | None:
    before, after = _named(one), _named(other)
    kept = {name: value for name, value in before.items() if not (name.startswith("_") and _is_empty(value))}
    if not kept.keys() <= after.keys():
        return None
    return ((value, after[name], f"{place}.{name}") for name, value in kept.items())


def _named(value: Any) -> dict[str, Any]:
    """The attributes of an instance, in its dict and in slots."""
    slots = {
        name
        for kind in type(value).__mro__
        for given in [vars(kind).get("__slots__", ())]
        for name in ([given] if isinstance(given, str) else given)
    }
    held = {name: getattr(value, name) for name in sorted(slots) if name != "__dict__" and hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _is_empty(value: Any) -> bool:
    """Return True for what a lazily filled attribute, or a counter, holds at first."""
    return isinstance(value, values.PLAIN) or (hasattr(value, "__len__") and len(value) == 0)


# Of the values of libraries: whether they are the same, or what of them to compare instead.


def _numpy(one: Any, other: Any) -> bool | tuple[Any, Any]:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return one.tolist(), other.tolist()
    is_view = one.shape and one.__array_interface__["data"] == other.__array_interface__["data"]
    return bool(is_view) or one.tobytes() == other.tobytes()


def _torch(one: Any, other: Any) -> bool:
    is_view = one.data_ptr() == other.data_ptr() and one.shape == other.shape
    return is_view or values.encode(one) == values.encode(other)


def _sparse(one: Any, other: Any) -> bool:
    rows = [value.tocsr(copy=True) for value in (one, other)]
    for each in rows:
        each.sum_duplicates()
        each.eliminate_zeros()
    return values.encode(rows[0]) == values.encode(rows[1])


def _graph(one: Any, other: Any) -> tuple[Any, Any]:
    before, after = (
        {"graph": value.graph, "nodes": dict(value.nodes(data=True)), "adj": value.adj} for value in (one, other)
    )
    return before, after


# By library: an attribute of its values, and how they are compared.
_LIBRARIES: dict[str, tuple[str, Callable[[Any, Any], bool | tuple[Any, Any]]]] = {
    "numpy": ("dtype", _numpy),
    "torch": ("detach", _torch),
    "pandas": ("equals", lambda one, other: bool(one.equals(other))),
    "polars": ("equals", lambda one, other: bool(one.equals(other))),
    "scipy": ("tocsr", _sparse),
    "networkx": ("adj", _graph),
}
