"""Remove forbidden operators from a candidate's process before its file is loaded.

An operator of torch loses its kernels in the dispatcher: any caller (Python, C++, compiled code or another operator)
gets an error that names it. A function of another package loses its attribute. Code that computes the same by other
means is not affected.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from aisp_mcp.judge.protocol.forbidden import CALLED, NEEDED, UNKNOWN

# Besides the devices, the kernels that `decompose` of an operator reaches; those in Python are cleared.
KEYS = ("CPU", "CUDA", "CompositeImplicitAutograd", "CompositeExplicitAutograd")


class ForbiddenOperatorError(RuntimeError):
    """A forbidden operator was called, or a name does not exist."""


def forbid(names: Sequence[str], rules: Sequence[str] = ()) -> None:
    """Remove these operators, and those among the rules of a problem, which may also be texts that its suite looks for.
    Raises ForbiddenOperatorError for a name that does not exist.
    """
    for name in names:
        if not _forbid_operator(name) and not _forbid_attribute(name):
            raise ForbiddenOperatorError(f"{UNKNOWN}{name}")
    for name in rules:
        with suppress(ForbiddenOperatorError):
            _forbid_operator(name) or _forbid_attribute(name)


def _forbid_operator(name: str) -> bool:
    """Remove the kernels of torch's operator of that name; False if there is none."""
    import torch

    words = name.replace("::", ".").split(".")
    if words[0] not in ("torch", "Tensor", "F", "aten") and len(words) > 1:
        return False
    spellings = ("_".join(words[1:]), words[-1])  # torch.linalg.norm is not torch.norm
    operator = next((each for each in spellings if hasattr(torch.ops.aten, each)), None)
    if operator is None:
        return False
    packet = getattr(torch.ops.aten, operator)
    if operator in NEEDED:
        raise ForbiddenOperatorError(f"{UNKNOWN}{name}")
    library = torch._C._dispatch_library("IMPL", "aten", "", __file__, 0)
    # Implementations end with their library: no candidate must find the last reference to it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ForbiddenOperatorError(f"{CALLED}{name}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        for overload in packet.overloads():
            getattr(packet, overload).py_kernels.clear()
            schema = getattr(packet, overload)._schema
            full = ".".join(filter(None, (schema.name.partition("::")[2], schema.overload_name)))
            for key in KEYS:
                library.impl(full, key, refuse, False)
    return True


def _forbid_attribute(name: str) -> bool:
    """Replace a function of a module under all names that lead to it; True if the module exists."""
    module, _, attribute = name.rpartition(".")
    if not module:
        return False
    module = {"F": "torch.nn.functional", "Tensor": "torch"}.get(module, module)
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return True  # not installed, so it cannot be called

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ForbiddenOperatorError(f"{CALLED}{name}")

    try:
        owner = importlib.import_module(module)
    except ImportError:
        return False
    if not hasattr(owner, attribute):
        return False
    setattr(owner, attribute, refuse)
    return True
