"""Make untrusted text (file names, program output) safe to print on a terminal.

Control characters become their visible pictures (U+2400 on). Characters that change the writing direction, with which
a line can pass for another one, are shown by their code.
"""

from __future__ import annotations

import re
from typing import Any

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str) -> str:
    """Return the text with control characters made visible; line feeds and tabs stay."""
    return _CONTROLS.sub(lambda match: _picture(ord(match[0])), text)


def escape_tree(value: Any) -> Any:
    """Escape every string in a JSON value, including field names."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {escape_tree(name): escape_tree(item) for name, item in value.items()}
    if isinstance(value, list):
        return [escape_tree(item) for item in value]
    return value


def escape_json(document: str) -> str:
    """Escape a JSON document so that it prints safely and still parses to the same value."""
    return _CONTROLS.sub(lambda match: match[0] if match[0] < " " else f"\\u{ord(match[0]):04x}", document)


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"
