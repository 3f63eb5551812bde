"""The API of generated pairs: load the user's function in a measuring process, and turn its result into tensors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol.module_loader import load_module, unusable


def function(path: str, name: str, folders: tuple[str, ...] = (), module: str = "") -> Callable[..., Any]:
    """The function of that name in the file, or in the named module of the package.

    folders: searched first by what the file imports. Raises BenchmarkError NO_FUNCTION, and whatever the file raises.
    """
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    stem = Path(path).stem
    loaded = importlib.import_module(module) if module else load_module(Path(path), f"aisp_function_{stem}")
    attribute = getattr(loaded, name, None)
    if not callable(attribute):
        raise unusable("NO_FUNCTION", f"{stem} has no function {name!r}.")
    result: Callable[..., Any] = attribute
    return result


def tensors(output: Any) -> Any:
    """The output with arrays, numbers and lists of numbers as tensors. Raises BenchmarkError BAD_OUTPUT."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if type(output).__module__ == "numpy":
        return torch.as_tensor(output)
    if isinstance(output, bool | int | float | complex):
        return torch.tensor(output, dtype=torch.float64 if isinstance(output, float) else None)
    if isinstance(output, dict):
        return {key: tensors(value) for key, value in output.items()}
    if isinstance(output, list | tuple):
        if output and all(isinstance(item, bool | int | float) for item in output):
            is_float = any(isinstance(item, float) for item in output)
            return torch.tensor(output, dtype=torch.float64 if is_float else None)
        return tuple(map(tensors, output))
    kind = type(output).__name__
    raise unusable("BAD_OUTPUT", f"The function returned a {kind}: tensors, arrays and numbers can be compared.")
