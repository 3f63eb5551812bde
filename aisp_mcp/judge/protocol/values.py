"""Python values as bytes that are safe to read: what a function returned, for a process that does not trust its author.

Numbers, texts, bytes, lists, tuples, dicts, sets, dataclasses, arrays, sparse matrices and graphs keep their kind.
Equal values have equal bytes, but for the order of a dict. Large lists of one type of number are written as arrays.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Integral
from types import SimpleNamespace
from typing import Any

MADE_N = 64  # the size that a generator gets unless its user names one
HEAD = 8  # bytes that hold the length of what follows
LARGE = 1 << 20  # bytes of a frame whose memory is worth keeping
TOO_LARGE = (1 << 62) - 1  # in place of the length, if it does not fit
PLAIN = (type(None), bool, int, float, complex, str, bytes)
SCALARS = (
    "datetime",
    "decimal",
    "fractions",
    "pathlib",
    "sympy",
    "uuid",
)  # modules whose values are compared by their repr
_KINDS = "biufcUSmM"  # of arrays
_NO_NUMBERS = "gGOV"  # of numpy: wider than Python's numbers, objects and records
_KNOWN = dict[type, bool]()  # types of single numbers and texts, and others
_INT64 = 1 << 63
AFTERWARDS = "afterwards"  # ends the name of what a call leaves in an argument, which is a part of its answer
RETURN = "Return its parts, as numbers, texts, lists, dicts or dataclasses."  # a hint


class UnknownValueError(TypeError):
    """A value of this type cannot be compared."""


def encode(value: Any) -> bytes:
    """The value as bytes. Raises UnknownValueError."""
    buffers: list[bytes] = []
    text = json.dumps(_tree(value, buffers), separators=(",", ":"), ensure_ascii=True).encode()
    head = json.dumps([len(text), *map(len, buffers)]).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, text, *buffers])


def decode(data: bytes) -> Any:
    """The value that encode() wrote. Raises ValueError for other bytes."""
    try:
        end = 4 + int.from_bytes(data[:4], "little")
        sizes = json.loads(data[4:end])
        parts = []
        for size in sizes:
            if not (isinstance(size, int) and 0 <= size <= len(data) - end):
                raise ValueError("a part is missing")
            parts.append(data[end : end + size])
            end += size
        return _value(json.loads(parts[0]), parts[1:])
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"the bytes are no value: {error}") from error


def is_number_or_text(kind: type) -> bool:
    """Return True for types of single numbers and texts: Python's own, and those of numpy that become these. What
    inherits from them is none.
    """
    if kind not in _KNOWN:
        types = sys.modules["numpy"].sctypeDict.values() if kind.__module__ == "numpy" else ()
        _KNOWN[kind] = kind in PLAIN or (kind in types and sys.modules["numpy"].dtype(kind).char not in _NO_NUMBERS)
    return _KNOWN[kind]


def is_plain(value: Any) -> bool:
    """Return True if the value consists of numbers, texts and arrays alone, so that it holds no work that is still to
    do.
    """
    kind = type(value)
    if is_number_or_text(kind):
        return True
    if kind in (list, tuple, set, frozenset):
        return all(map(is_number_or_text, {*map(type, value)})) or all(map(is_plain, value))
    if kind is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    is_array = _library(value) == "numpy" and kind.__name__ == "ndarray"
    return is_array and (value.dtype.kind in _KINDS or has_columns(value.dtype))


def has_columns(dtype: Any) -> bool:
    """Return True for a structured type of numpy whose fields are numbers, texts or times."""
    return bool(dtype.names) and all(dtype[name].kind in _KINDS for name in dtype.names)


def framed(data: bytes, capacity: int, frame: bytearray | None = None) -> bytearray:
    """The bytes with their length before them and zeros after them, or a mark that they do not fit. frame: to write
    into, of that capacity and with a frame in it.
    """
    if frame is None:
        frame = bytearray(capacity)
    end, fits = HEAD + len(data), HEAD + len(data) <= capacity
    used = min(HEAD + int.from_bytes(frame[:HEAD], "little"), capacity)
    frame[:HEAD] = (len(data) if fits else TOO_LARGE).to_bytes(HEAD, "little")
    if fits:
        frame[HEAD:end] = data
    start = end if fits else HEAD
    frame[start:used] = bytes(max(used - start, 0))
    return frame


def unframed(frame: bytes | memoryview) -> bytes | None:
    """The bytes of a frame; None if they did not fit."""
    length = int.from_bytes(frame[:HEAD], "little")
    return bytes(frame[HEAD : HEAD + length]) if length + HEAD <= len(frame) else None


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def member(value: Enum) -> str:
    """The name of a member of an enumeration, which two files may define alike."""
    return f"{type(value).__name__}.{value.name}"


def _tree(value: Any, buffers: list[bytes]) -> Any:
    """The value as JSON, in which lists begin with a letter for their kind."""
    kind = type(value)
    if value is None or kind is bool or kind is str or (kind is int and abs(value) < _INT64):
        return value
    if isinstance(value, bool | float | int | complex | str | bytes):
        return _scalar(value)
    if isinstance(value, Enum):
        return ["x", member(value)]
    library = _library(value)
    if library == "numpy":
        return _array(value, buffers)
    if library == "torch":
        return _tensor(value, buffers)
    if library in ("pandas", "polars") and hasattr(value, "to_numpy"):
        return _table(value, buffers)
    if library == "scipy" and hasattr(value, "tocsr"):
        return _sparse(value, buffers)
    if library == "networkx" and hasattr(value, "adj"):
        return _graph(value, buffers)
    if isinstance(value, list | tuple):
        return ["l" if isinstance(value, list) else "t", *_items(value, buffers)]
    if isinstance(value, Mapping):
        return ["d", *([_tree(key, buffers), _tree(item, buffers)] for key, item in value.items())]
    if isinstance(value, set | frozenset):
        return ["s", *sorted((_tree(item, buffers) for item in value), key=json.dumps)]
    if is_dataclass(value) and not isinstance(value, type):
        named = ([field.name, _tree(getattr(value, field.name), buffers)] for field in fields(value))
        return ["r", kind.__name__, *named]
    if isinstance(value, Integral):  # of a library for algebra
        return _scalar(int(value))
    if library in SCALARS:
        return ["x", repr(value)]
    if isinstance(value, range | bytearray) or hasattr(value, "__next__"):
        return _tree(bytes(value) if isinstance(value, bytearray) else list(value), buffers)
    raise UnknownValueError(f"a {kind.__name__} cannot be compared")


def _items(values: Any, buffers: list[bytes]) -> list[Any]:
    """The items of a list or tuple; of many numbers of one type, a buffer."""
    kinds = {*map(type, values)} if len(values) > 8 else set()
    if kinds == {float} or (kinds == {int} and max(map(abs, values)) < _INT64):
        code = "d" if kinds == {float} else "q"
        buffers.append(array(code, values).tobytes())
        return [[f"*{code}", len(buffers)]]
    if kinds == {str}:
        return list(values)
    return [_tree(value, buffers) for value in values]


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if abs(value) < _INT64 else ["i", hex(value)]
    if isinstance(value, float):
        return ["f", float(value).hex()]
    if isinstance(value, complex):
        return ["c", value.real.hex(), value.imag.hex()]
    return ["b", base64.b64encode(value).decode()]


def _array(value: Any, buffers: list[bytes]) -> Any:
    """An array; a structured one by its columns, a scalar of numpy as Python's own, an array of objects as a list."""
    if has_columns(value.dtype) and value.shape:
        names = value.dtype.names
        return ["v", list(value.shape), *([name, _array(value[name], buffers)] for name in names)]
    if value.dtype.kind not in _KINDS:
        return _tree(value.tolist(), buffers)
    if is_masked(value):
        return ["d", *([name, _array(part, buffers)] for name, part in unmasked(value).items())]
    if type(value).__name__ != "ndarray" and not value.shape:
        return _tree(value.item(), buffers)
    native = value.astype(value.dtype.newbyteorder("="))
    buffers.append(native.tobytes())
    return ["a", native.dtype.str, list(native.shape), len(buffers)]


def is_masked(value: Any) -> bool:
    """Return True for an array of numpy with a mask."""
    return type(value).__module__.startswith("numpy.ma") and hasattr(value, "filled")


def unmasked(value: Any) -> dict[str, Any]:
    """The values of an array with a mask, 0 where they are masked, and where that is."""
    nowhere = (value.data != value.data) & False
    return {"values": value.filled(0), "masked": nowhere | value.mask}


def _tensor(value: Any, buffers: list[bytes]) -> Any:
    if not hasattr(value, "detach"):
        raise UnknownValueError(f"a {type(value).__name__} cannot be compared")
    value = value.detach().cpu()
    value = value.to_dense() if str(value.layout) != "torch.strided" else value
    if str(value.dtype) == "torch.bfloat16":
        value = value.float()
    return _array(value.resolve_conj().resolve_neg().numpy(), buffers)


def _table(value: Any, buffers: list[bytes]) -> Any:
    """A series or a frame as a dict of its columns, and of its labels if they say more than the position."""
    columns = {str(name): value[name] for name in value.columns} if hasattr(value, "columns") else {"values": value}
    named = [[name, _array(column.to_numpy(), buffers)] for name, column in columns.items()]
    said = labels(value)
    return ["d", *named, *([] if said is None else [[".index", _array(said, buffers)]])]


def labels(value: Any) -> Any:
    """The labels of a series or a frame of pandas as an array; None if they are the positions. These may be of a type
    of their own, and of another where they only happen to be.
    """
    index: Any = getattr(value, "index", None)
    if not type(index).__module__.startswith("pandas"):
        return None
    held = index.to_numpy()
    if held.dtype.kind not in "iu":
        return held
    held = held.astype("int64")
    are_positions = not len(held) or (held[0] == 0 and bool((held[1:] - held[:-1] == 1).all()))
    return None if are_positions else held


def _sparse(value: Any, buffers: list[bytes]) -> Any:
    """A sparse matrix as rows, columns and values in one order, with the format that it is to have again."""
    rows = value.tocsr().copy()
    rows.sum_duplicates()
    parts = (rows.indptr.astype("int64"), rows.indices.astype("int64"), rows.data)
    kind = "array" if type(value).__name__.endswith("array") else "matrix"
    return ["m", value.format, kind, list(rows.shape), *(_array(part, buffers) for part in parts)]


def _graph(value: Any, buffers: list[bytes]) -> Any:
    """A graph by its nodes and edges, each with its attributes."""
    nodes = [[_tree(node, buffers), _tree(dict(about), buffers)] for node, about in value.nodes(data=True)]
    is_multi = value.is_multigraph()
    edges = value.edges(keys=True, data=True) if is_multi else value.edges(data=True)
    listed = [[*(_tree(end, buffers) for end in edge[:-1]), _tree(dict(edge[-1]), buffers)] for edge in edges]
    if not value.is_directed():
        listed = [[*sorted(edge[:2], key=json.dumps), *edge[2:]] for edge in listed]
    return ["g", value.is_directed(), is_multi, sorted(nodes, key=json.dumps), sorted(listed, key=json.dumps)]


def _value(tree: Any, buffers: list[bytes]) -> Any:
    if not isinstance(tree, list):
        return tree
    return _READERS[tree[0]](tree[1:], buffers)


def _read_items(items: list[Any], buffers: list[bytes]) -> list[Any]:
    if len(items) == 1 and isinstance(items[0], list) and items[0][0] in ("*d", "*q"):
        return array(items[0][0][1], buffers[items[0][1] - 1]).tolist()
    return [_value(item, buffers) for item in items]


def _read_array(parts: list[Any], buffers: list[bytes]) -> Any:
    import numpy

    name, shape, number = parts
    dtype = numpy.dtype(str(name))
    if dtype.kind not in _KINDS or math.prod(shape) * dtype.itemsize != len(buffers[number - 1]):
        raise ValueError("an array has another size")
    return numpy.frombuffer(buffers[number - 1], dtype).reshape(shape).copy()


def _read_columns(parts: list[Any], buffers: list[bytes]) -> Any:
    import numpy

    shape, *named = parts
    columns = {str(name): _value(column, buffers) for name, column in named}
    records = numpy.empty(shape, [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        records[name] = column
    return records


def _read_sparse(parts: list[Any], buffers: list[bytes]) -> Any:
    import scipy.sparse

    form, kind, shape, *arrays = parts
    indptr, indices, data = (_value(part, buffers) for part in arrays)
    matrix = {"array": scipy.sparse.csr_array, "matrix": scipy.sparse.csr_matrix}[kind](tuple(shape))
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data
    matrix.check_format(full_check=True)
    return matrix.asformat(form)


def _read_graph(parts: list[Any], buffers: list[bytes]) -> Any:
    import networkx

    is_directed, is_multi, nodes, edges = parts
    graph = (networkx.MultiDiGraph if is_directed else networkx.MultiGraph)()
    if not is_multi:
        graph = networkx.DiGraph() if is_directed else networkx.Graph()
    for node, about in nodes:
        graph.add_node(_value(node, buffers), **{str(k): v for k, v in _value(about, buffers).items()})
    for *ends, about in edges:
        graph.add_edge(
            *(_value(end, buffers) for end in ends), **{str(k): v for k, v in _value(about, buffers).items()}
        )
    return graph


def _read_record(parts: list[Any], buffers: list[bytes]) -> Any:
    return Record(str(parts[0]), {str(name): _value(item, buffers) for name, item in parts[1:]})


class Record(SimpleNamespace):
    """A dataclass's fields, by name. It stands for an instance of a class that this process does not load."""

    def __init__(self, kind: str, named: Mapping[str, Any]) -> None:
        super().__init__(**named)
        self.__dict__["__kind__"] = kind


_READERS: dict[str, Callable[[list[Any], list[bytes]], Any]] = {
    "l": _read_items,
    "t": lambda items, buffers: tuple(_read_items(items, buffers)),
    "d": lambda items, buffers: {_value(key, buffers): _value(item, buffers) for key, item in items},
    "s": lambda items, buffers: {_value(item, buffers) for item in items},
    "r": _read_record,
    "x": lambda parts, _: Record("", {"text": str(parts[0])}),
    "i": lambda parts, _: int(parts[0], 16),
    "f": lambda parts, _: float.fromhex(parts[0]),
    "c": lambda parts, _: complex(float.fromhex(parts[0]), float.fromhex(parts[1])),
    "b": lambda parts, _: base64.b64decode(parts[0], validate=True),
    "a": _read_array,
    "v": _read_columns,
    "m": _read_sparse,
    "g": _read_graph,
}
