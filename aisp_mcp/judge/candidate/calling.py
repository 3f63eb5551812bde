"""The API of generated pairs: load the user's function in a measuring process, and turn its result into tensors."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol.module_loader import load_module, unusable

SCALARS = ("datetime", "decimal", "fractions", "pathlib", "uuid")  # modules whose values are compared by their repr
FEW = 16  # elements of a tuple or list up to which each is an output of its own


def function(path: str, name: str, folders: tuple[str, ...] = (), module: str = "") -> Callable[..., Any]:
    """The function of that name in the file, or in the named module of the package. Of a class, an instance, which is
    made without arguments.

    folders: searched first by what the file imports. Raises BenchmarkError NO_FUNCTION, and whatever the file raises.
    """
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    stem = Path(path).stem
    loaded = importlib.import_module(module) if module else load_module(Path(path), f"aisp_function_{stem}")
    attribute = getattr(loaded, name, None)
    if inspect.isclass(attribute) and callable(getattr(attribute, "__call__", None)):  # noqa: B004 - of its instances
        attribute = attribute()
    if not callable(attribute):
        raise unusable("NO_FUNCTION", f"{stem} has no function {name!r}.")
    result: Callable[..., Any] = attribute
    return result


def tensors(output: Any) -> Any:
    """The output as tensors: arrays, numbers, lists of floats, and tuples and dicts of these as themselves; texts,
    sets, records, and lists of integers or of anything else as a hash of what must be equal, and the floats among them
    in order. Raises BenchmarkError BAD_OUTPUT.
    """
    import torch

    if isinstance(output, torch.Tensor):
        return output if output.layout == torch.strided else output.to_dense()
    if isinstance(output, bool | int | float | complex):
        return torch.tensor(output, dtype=torch.float64 if isinstance(output, float) else None)
    library = type(output).__module__.partition(".")[0]
    if library == "numpy":
        return torch.as_tensor(output) if output.dtype.kind in "biufc" else _encoded(output.tolist())
    if library in ("pandas", "polars"):
        return _columns(output)
    if library == "scipy" and hasattr(output, "toarray"):
        return torch.as_tensor(output.toarray())
    if isinstance(output, dict) and output and all(isinstance(value, _whole()) for value in output.values()):
        return {str(key): tensors(value) for key, value in output.items()}
    if isinstance(output, list | tuple) and output:
        if all(type(item) in (float, int) for item in output) and float in map(type, output):
            return torch.tensor(output, dtype=torch.float64)
        if len(output) <= FEW and any(isinstance(item, (*_whole(), list, tuple, dict)) for item in output):
            return tuple(part for item in output for part in _parts(tensors(item)))
    return _encoded(output)


def _parts(converted: Any) -> Sequence[Any]:
    """The tensors of a converted value, without names."""
    if isinstance(converted, dict):
        return [*converted.values()]
    return converted if isinstance(converted, tuple) else [converted]


def _whole() -> tuple[type, ...]:
    """Types of values that are outputs of their own."""
    import torch

    numpy = sys.modules.get("numpy")
    return (torch.Tensor, float, complex, *((numpy.ndarray, numpy.generic) if numpy else ()))


def _columns(output: Any) -> Any:
    """A series as an array, a frame as arrays by the names of its columns."""
    if not hasattr(output, "columns"):
        return tensors(output.to_numpy())
    return {str(name): tensors(output[name].to_numpy()) for name in output.columns}


def _encoded(output: Any) -> dict[str, Any]:
    """A hash of types, structure, integers and texts, which must be equal, and the floats in order."""
    import torch

    floats = list[float]()
    text = _canonical(output, floats)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    encoded = {"hash": torch.frombuffer(bytearray(digest), dtype=torch.uint8)}
    return {**encoded, "floats": torch.tensor(floats, dtype=torch.float64)} if floats else encoded


def _canonical(value: Any, floats: list[float]) -> str:
    """A text that is the same for equal values. Floats outside sets are collected instead."""
    if isinstance(value, float):
        floats.append(value)
        return "f"
    if value is None or isinstance(value, bool | int | complex | str | bytes):
        return repr(value)
    if isinstance(value, list | tuple):
        kind = "l" if isinstance(value, list) else "t"
        return f"{kind}({','.join([_canonical(item, floats) for item in value])})"
    if isinstance(value, Mapping):
        items = sorted((_canonical(key, []), item) for key, item in value.items())
        return f"d({','.join([f'{key}:{_canonical(item, floats)}' for key, item in items])})"
    if isinstance(value, set | frozenset):
        return f"s({','.join(sorted(repr(item) for item in value))})"
    if is_dataclass(value) and not isinstance(value, type):
        return f"r({','.join([_canonical(getattr(value, field.name), floats) for field in fields(value)])})"
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" or module == "torch":
        return _canonical(value.tolist(), floats)
    if module in SCALARS:
        return repr(value)
    if isinstance(value, range) or hasattr(value, "__next__"):
        return _canonical(list(value), floats)
    kind = type(value).__name__
    raise unusable("BAD_OUTPUT", f"The function returned a {kind}, which cannot be compared.")
