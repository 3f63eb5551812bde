"""A badge: two words and a colour as an SVG file of about 1 kB, for a README.

Red if something failed; grey if anything was left unjudged or nothing was judged at all; green only if every benchmark
has a verdict and none is bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from aisp_mcp.runs.export.outcomes import Row, State, count
from aisp_mcp.server.text.escape import visible

GREEN, RED, GREY, LABEL = "#1a7f37", "#b62324", "#57606a", "#24292f"
CHAR, PAD, HEIGHT = 6.6, 7.0, 20  # pixels; text is stretched to fit, so that fonts may differ
WORDS = {
    State.FAILED: "failed",
    State.BROKEN: "broken",
    State.PASSED: "passed",
    State.UNJUDGED: "not judged",
}


def to_badge(rows: Sequence[Row], label: str = "aisp") -> bytes:
    return _draw(visible(label).replace("\n", " ")[:40], message(rows), colour(rows)).encode()


def message(rows: Sequence[Row]) -> str:
    """Counts that are not zero, worst first."""
    counts = [(count(rows, state), word) for state, word in WORDS.items()]
    return " · ".join(f"{number} {word}" for number, word in counts if number) or "nothing measured"


def colour(rows: Sequence[Row]) -> str:
    """The colour of the message's field."""
    if count(rows, State.FAILED, State.BROKEN):
        return RED
    return GREEN if rows and not count(rows, State.UNJUDGED) else GREY


def _draw(label: str, message: str, fill: str) -> str:
    left, right = (2 * PAD + CHAR * len(text) for text in (label, message))
    width = left + right
    title = escape(f"{label}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{HEIGHT}" role="img" '
        f'aria-label="{title}"><title>{title}</title>'
        f'<rect width="{left:.1f}" height="{HEIGHT}" fill="{LABEL}"/>'
        f'<rect x="{left:.1f}" width="{right:.1f}" height="{HEIGHT}" fill="{fill}"/>'
        '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{_text(PAD, label)}{_text(left + PAD, message)}</g></svg>\n"
    )


def _text(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="14" textLength="{CHAR * len(text):.1f}">{escape(text)}</text>'
