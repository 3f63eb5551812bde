"""Numbers and messages as they appear in verdicts and flags. Pure functions."""

from __future__ import annotations

import math


def format_ratio(log_ratio: float) -> str:
    """A ratio from its logarithm: three decimals near 1, two or three significant digits further out."""
    ratio = math.exp(min(log_ratio, 700.0))
    if 0.8 < ratio < 1.25:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}" if 0.1 < ratio < 100 else f"{ratio:.3g}"


def format_percent(fraction: float) -> str:
    if fraction > 10:
        return "over 1000 %"
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def as_clause(message: str) -> str:
    """A message as the second half of a sentence."""
    message = message.strip().rstrip(".")
    word = message.split(" ")[0]
    return message[:1].lower() + message[1:] if word[1:] == word[1:].lower() else message  # but not NaN
