"""Names in profiles come from the profiled program: they are data, and may be hostile."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME = 4096
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_KINETO = re.compile(r"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(?:cpp|h):\d+\]")
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b")
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(name: object, limit: int = MAX_NAME) -> str:
    """One printable line of at most `limit` characters: no escape sequences, no control or direction characters."""
    text = name if isinstance(name, str) else str(name)
    text = text[: limit * 4]
    if not (text.isascii() and text.isprintable()):
        text = _ANSI.sub("", text)
        text = "".join(
            " " if c in "\n\r\t" else c for c in text if c in "\n\r\t" or unicodedata.category(c) not in _HIDDEN
        )
    return shorten(text.strip(), limit)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end, which distinguish kernels, around an ellipsis."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[len(text) - tail :]}"


def duration(ns: float) -> str:
    """Nanoseconds in a readable unit: 7.16 s, 35 ms, 1.2 µs."""
    if abs(ns) >= 1e13:
        return f"{ns / 1e9:,.0f} s"
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.3g} ns"


def spoken(output: str) -> str:
    """The output without the log lines of torch's profiler library, which end every recording."""
    return "\n".join(line for line in output.splitlines() if not _KINETO.match(line)).strip()


def last_words(output: str) -> str:
    """The last line that names an exception, else the last line, as a sentence; profilers print more after
    a failure.
    """
    lines = spoken(output).splitlines()
    named = [line for line in lines if _ERROR.match(line)] or lines
    return f"Its last output: {clean(named[-1], 300)}" if named else "It printed nothing."
