"""The filter grammar of lists: `chapter:ch07 verdict:faster device:h200 kind:gate since:7d attention`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.store.records.verdict_row import ANY_KIND, RunKind, VerdictFilter

UNITS_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_CHARS, MAX_WORDS = 500, 20
_KEYS = (*(name for name in VerdictFilter.model_fields if name not in ("text", "kinds", "confirmed")), "kind")


def parse(text: str, now: float | None = None) -> VerdictFilter:
    """Parse a filter; words without a key match a part of the target's name. Without kind: runs of all kinds match.

    since: a number with m, h, d or w before now, or a date such as 2026-11-01 (UTC). Raises UsageError BAD_FILTER.
    """
    words = text.split()
    if len(text) > MAX_CHARS or len(words) > MAX_WORDS:
        raise _bad(f"A filter has at most {MAX_WORDS} words and {MAX_CHARS} characters.")
    values: dict[str, Any] = {}
    text_words = []
    for word in words:
        key, colon, value = word.partition(":")
        if not colon or re.fullmatch(r"(ch\d+|labs/.*)", key):  # ch07:row_sum is a name, not a key
            text_words.append(word)
        elif key not in _KEYS or not value or key in values:
            raise _bad(f"'{word[:60]}' is not KEY:VALUE, or its key is repeated or not one of {', '.join(_KEYS)}.")
        elif key == "verdict" and value not in list(Verdict):
            raise _bad(f"'{value[:20]}' is not one of {', '.join(Verdict)}.")
        elif key == "kind" and value not in list(RunKind):
            raise _bad(f"'{value[:20]}' is not one of {', '.join(RunKind)}.")
        else:
            values[key] = since(value, now) if key == "since" else value
    kinds = (RunKind(values.pop("kind")),) if "kind" in values else ANY_KIND
    return VerdictFilter.model_validate({**values, "text": tuple(text_words), "kinds": kinds})


def since(value: str, now: float | None = None) -> float:
    """Return UTC seconds. Raises UsageError BAD_FILTER."""
    relative = re.fullmatch(r"(\d{1,6})([mhdw])", value)
    if relative:
        return (time.time() if now is None else now) - int(relative[1]) * UNITS_S[relative[2]]
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _bad(f"since:{value[:20]} is neither a duration such as 7d nor a date such as 2026-11-01.") from None


def _bad(message: str) -> UsageError:
    return UsageError("BAD_FILTER", message, "Example: chapter:ch07 verdict:faster device:h200 since:7d attention")
