"""Call the function of a compiled C++ or CUDA C++ candidate on tensors; `run` is generated from its launch header.

The header is turned into a few lines of Python once, so that a call has only the overhead of ctypes (some
microseconds), which is part of the candidate's time.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aisp_mcp.judge.native.launch_header import STREAM, Allocation, Launch, expression

LIBRARY = "candidate.so"
HEADER = "launch.json"


class NativeError(RuntimeError):
    """The function returned an error code."""


def load(library: Path) -> SimpleNamespace:
    """A module-like object with `run` of the library, whose header is next to it. Raises OSError, AttributeError."""
    import torch

    launch = _launch(json.loads((library.parent / HEADER).read_text("utf-8")))
    function = getattr(ctypes.CDLL(str(library)), launch.function)
    function.restype = ctypes.c_int
    function.argtypes = [_ctype(text) for text in launch.arguments]
    space: dict[str, Any] = {"torch": torch, "_call": function, "_failed": _failed, "_dense": _dense}
    exec(compile(program(launch), str(library.with_suffix(".py")), "exec"), space)
    return SimpleNamespace(run=space["run"])


def _launch(header: dict[str, Any]) -> Launch:
    allocations = {
        key: {name: Allocation(**allocation) for name, allocation in header[key].items()}
        for key in ("outputs", "scratch")
    }
    return Launch(
        header["summary"], header["function"], tuple(header["arguments"]), **allocations, flags=tuple(header["flags"])
    )


def _ctype(text: str) -> Any:
    return ctypes.c_void_p if text.isidentifier() else ctypes.c_int64


def program(launch: Launch) -> str:
    """Source of `run`: allocate, call, return the outputs."""
    inputs = launch.inputs()
    lines = [f"def run(*, {', '.join(inputs)}, **_):"]
    dense = [name for name in inputs if name in launch.arguments and name not in launch.strided()]
    lines += [f"    _dense({name!r}, {name})" for name in dense]
    lines += [f"    {name} = {_allocate(allocation, inputs[0])}" for name, allocation in launch.made.items()]
    lines += [f"    code = _call({', '.join(map(_argument, launch.arguments))})"]
    lines += ["    if code:", "        _failed(code)"]
    outputs = list(launch.outputs)
    lines += [f"    return {outputs[0] if len(outputs) == 1 else '(' + ', '.join(outputs) + ')'}"]
    return "\n".join(lines) + "\n"


def _argument(text: str) -> str:
    if text == STREAM:
        return "torch.cuda.current_stream().cuda_stream"
    return f"{text}.data_ptr()" if text.isidentifier() else expression(text)


def _allocate(allocation: Allocation, first: str) -> str:
    """Uninitialised memory: if a function skips elements, the remaining garbage is detected."""
    model = allocation.like or first
    shape = (
        f"{model}.shape"
        if allocation.shape is None
        else f"({' '.join(expression(size) + ',' for size in allocation.shape)})"
    )
    dtype = f"torch.{allocation.dtype}" if allocation.dtype else f"{model}.dtype"
    return f"torch.empty({shape}, dtype={dtype}, device={model}.device)"


def _dense(name: str, tensor: Any) -> None:
    if not tensor.is_contiguous():
        raise NativeError(f"{name} is not contiguous, and the launch header does not pass its strides")


def _failed(code: int) -> None:
    raise NativeError(f"the function returned {code}; 0 is success, on a GPU it is a cudaError_t")
