"""Kinds of activity, by name: the colours of timelines and flame graphs, and their legend."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aisp_mcp.profile.timeline import names

# Kind to its label, in the order of the legend. The colours are in kinds.css.
WORDS = {
    "product": "matrix products, convolutions",
    "attention": "attention",
    "pointwise": "element-wise, norms, reductions, optimizer",
    "copy": "copies and fills",
    "communication": "communication",
    "device": "other device work",
    "operator": "operators",
    "call": "runtime calls",
    "python": "Python and other frames",
    "range": "ranges and threads",
}
_FAMILIES = {
    **dict.fromkeys(("gemm", "convolution"), "product"),
    **dict.fromkeys(
        ("normalization", "softmax", "optimizer", "reduction", "elementwise", "activation", "rope", "quantization"),
        "pointwise",
    ),
    **dict.fromkeys(("attention", "copy", "communication"), ""),  # the kind has the family's name
}
_DEVICE = re.compile(r"(?:GPU|device|rank)\b", re.I)
_COPY = re.compile(r"mem(?:cpy|set)|^\[?CUDA mem", re.I)
_OPERATOR = re.compile(r"^(?:aten|c10d?|torch|prims|record_param_comms|autograd|nn\.Module)\b|Backward\d*$|::")
_CALL = re.compile(r"^(?:cuda|hip|cu[A-Z]|hsa|nccl)\w*$")
_FRAME = re.compile(r"\.py\b|\(.*:\d+\)|<.*>$")


def of_device(name: str) -> str:
    """The kind of a kernel or copy."""
    if _COPY.search(name):
        return "copy"
    family = names.family(name)
    return _FAMILIES.get(family, "device") or family


def of_host(name: str) -> str:
    """The kind of a call, operator, frame or range on the host."""
    if _CALL.search(name):
        return "call"
    if _FRAME.search(name):
        return "python"
    return "operator" if _OPERATOR.search(name) else "range"


def of_frame(stack: tuple[str, ...]) -> str:
    """The kind of the last frame of a stack."""
    if len(stack) > 2 and _DEVICE.match(stack[0]):
        return of_device(stack[-1])
    return "range" if len(stack) < 2 else of_host(stack[-1])


def legend(used: Iterable[str]) -> list[tuple[str, str]]:
    """(kind, label) of those kinds, in a fixed order."""
    present = set(used)
    return [(kind, words) for kind, words in WORDS.items() if kind in present]
