"""The size of a benchmark as text: a preset's name, and values that override some of it.

`small`, `default,rows=448,dtype=bfloat16` and `small+transposed` are passed in place of a preset's name to every
process that loads the specification. Transposed inputs have the strides of a column-major copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Number = int | float | str
_VALUE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[\w.+-]+)")
TRANSPOSED = "+transposed"


@dataclass(frozen=True)
class Sizes:
    """preset: small, default or large. values: attributes set after it. transposed: inputs have other strides."""

    preset: str
    values: Mapping[str, Number] = field(default_factory=dict)
    transposed: bool = False

    def text(self) -> str:
        """The text from which read() makes the same size."""
        parts = [self.preset, *(f"{name}={value}" for name, value in self.values.items())]
        return ",".join(parts) + (TRANSPOSED if self.transposed else "")


def read(text: str) -> Sizes:
    """A size from its text. Raises UsageError BAD_SIZES."""
    plain = text.removesuffix(TRANSPOSED)
    preset, *parts = plain.split(",")
    return Sizes(preset, dict(value(part) for part in parts), plain != text)


def value(text: str) -> tuple[str, Number]:
    """Name and value of `rows=448`. Raises UsageError BAD_SIZES."""
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        from aisp_mcp.errors import UsageError  # here, so that a candidate's process has it only after an error

        raise UsageError("BAD_SIZES", f"{text[:60]!r} is not a size.", "Write name=value, such as rows=448.")
    return match["name"], number(match["value"])


def number(text: str) -> Number:
    """An integer, a float, or the text itself, such as a dtype's name."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settable(benchmark: Any) -> dict[str, Number]:
    """Attributes that a size may override: plain values of the specification's own class, by name."""
    own = {name: value for cls in reversed(type(benchmark).__mro__[:-2]) for name, value in vars(cls).items()}
    return {
        name: getattr(benchmark, name)
        for name, value in own.items()
        if isinstance(value, int | float | str)
        and not name.startswith("_")
        and name not in ("goal", "cold", "caches", "layout", "make", "check", "rtol", "atol")
    }
