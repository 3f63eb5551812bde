"""Error texts for invalid arguments. The validation library's texts and links never reach a caller."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aisp_mcp.errors import AispError

MAX_VALUE = 60
_ABOUT_A_PATH = {
    *(errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSPC, errno.ENOTDIR, errno.EPERM),
    *(errno.EDQUOT, errno.EROFS),
}

_EXPECTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "int_type": lambda _: "an integer",
    "int_parsing": lambda _: "an integer",
    "int_from_float": lambda _: "an integer",
    "float_type": lambda _: "a number",
    "float_parsing": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "bool_parsing": lambda _: "true or false",
    "string_type": lambda _: "text",
    "list_type": lambda _: "a list",
    "tuple_type": lambda _: "a list",
    "set_type": lambda _: "a list",
    "dict_type": lambda _: "an object",
    "model_type": lambda _: "an object",
    "none_required": lambda _: "null",
    "greater_than_equal": lambda c: f"at least {c['ge']:g}",
    "greater_than": lambda c: f"more than {c['gt']:g}",
    "less_than_equal": lambda c: f"at most {c['le']:g}",
    "less_than": lambda c: f"less than {c['lt']:g}",
    "multiple_of": lambda c: f"a multiple of {c['multiple_of']:g}",
    "literal_error": lambda c: f"one of {c['expected']}",
    "enum": lambda c: f"one of {c['expected']}",
    "string_too_short": lambda c: f"text of at least {c['min_length']} characters",
    "string_too_long": lambda c: f"text of at most {c['max_length']} characters",
    "string_pattern_mismatch": lambda c: f"text that matches {c['pattern']}",
    "too_short": lambda c: f"at least {c['min_length']} items",
    "too_long": lambda c: f"at most {c['max_length']} items",
}


@dataclass(frozen=True)
class Problem:
    """One invalid argument."""

    sentence: str
    missing: bool


def explain(errors: Sequence[Any]) -> list[Problem]:
    """One problem per argument path; the branches of a union are joined with "or"."""
    groups: dict[str, list[Any]] = {}
    for error in errors:
        groups.setdefault(_argument_path(error["loc"]), []).append(error)
    return [_problem(path, group) for path, group in groups.items()]


def of_the_system(error: OSError) -> AispError | None:
    """An OSError about one of the caller's paths as an AispError; None for any other."""
    if error.errno not in _ABOUT_A_PATH or error.filename is None:
        return None
    reason = f"{os.strerror(error.errno)}: {_bounded(str(error.filename), 200)!r}."
    return AispError("FILE_REFUSED", reason, "Give another path, or make this one usable.")


def _argument_path(loc: tuple[int | str, ...]) -> str:
    """`targets[2]`: the argument and positions in it, without the names of union branches."""
    text = str(loc[0]) if loc else "arguments"
    return text + "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))


def _problem(path: str, group: Sequence[Any]) -> Problem:
    first = group[0]
    if first["type"] == "missing":
        return Problem(f"'{path}' is required.", True)
    if first["type"] in ("value_error", "assertion_error"):
        return Problem(f"'{path}': {_bounded(str(first['ctx']['error']), 300)}.".replace("..", "."), False)
    expected = " or ".join(dict.fromkeys(_expected(error) for error in group))
    return Problem(f"'{path}' must be {expected}, not {_shown(first['input'])}.", False)


def _expected(error: Any) -> str:
    word = _EXPECTED.get(error["type"])
    return word(error.get("ctx", {})) if word else "a valid value"


def _shown(value: Any) -> str:
    """The value, bounded, or only its type for objects and lists."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"the text {json.dumps(_bounded(value, MAX_VALUE), ensure_ascii=False)}"
    return _bounded(json.dumps(value), MAX_VALUE)


def _bounded(text: str, limit: int) -> str:
    line = "".join(c if c.isprintable() else " " for c in text[:limit])
    return line + "…" if len(text) > limit else line
