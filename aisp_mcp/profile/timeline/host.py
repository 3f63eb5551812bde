"""Classification of host calls, for explaining idle time."""

from __future__ import annotations

import re
from functools import lru_cache

_KINDS = (
    ("synchronize", re.compile(r"synchronize|(?:cuda|hip)(?:Stream|Event)Query|_local_scalar_dense", re.I)),
    (
        "load code",
        re.compile(r"module(?:load|getfunction)|libraryload|librarygetkernel|cuLinkAdd|cuLinkComplete|nvrtc", re.I),
    ),
    (
        "allocate",
        re.compile(
            r"malloc|(?:cu(?:da)?|hip)(?:mem)?free(?!async)|hostalloc|hostregister|memalloc|hostunregister|memmap|memcreate",
            re.I,
        ),
    ),
    ("launch", re.compile(r"launch", re.I)),
    ("copy", re.compile(r"memcpy|memset|memprefetch", re.I)),
)
_INPUT = re.compile(r"data_?loader|next_?batch|load_?batch|data_?wait|fetch_?batch|get_?batch", re.I)
_COMPILE = re.compile(
    r"dynamo|inductor|torch_?compile|aot_?autograd|jit_?compile|compile_?fx|compile[rd]?_?(?:fn|inner|frame)", re.I
)


@lru_cache(maxsize=4096)
def call_kind(name: str) -> str:
    """synchronize, load code, allocate, launch, copy or other CUDA call."""
    return next((label for label, pattern in _KINDS if pattern.search(name)), "other CUDA call")


@lru_cache(maxsize=4096)
def range_kind(name: str) -> str | None:
    """input or compile for a range or operator with such a name, else None."""
    if _INPUT.search(name):
        return "input"
    return "compile" if _COMPILE.search(name) else None


@lru_cache(maxsize=4096)
def blocking(name: str) -> bool:
    """Return True if this call makes the host wait for the device."""
    return "ynchronize" in name or bool(
        re.fullmatch(r"(?:cuda|cu|hip)Memcpy(?:2D|3D|HtoD|DtoH|ToSymbol|WithStream)?(?:_v\d+)?(?:_ptds)?", name)
    )
