"""Raw arguments to a tool's parameters, with strict types and errors that a caller can act on."""

from __future__ import annotations

import difflib
import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from aisp_mcp.errors import AispError, UsageError
from aisp_mcp.records import Params
from aisp_mcp.server.registry import JobParams, Tool

# Other names of arguments, which work unless they mean something else: each stands for the first of these that a tool
# has.
OTHER_NAMES = {
    **{"run": ("run_id",), "question": ("query",), "concept": ("query",), "filter": ("query",), "label": ("name",)},
    **{"a": ("baseline",), "b": ("candidate",), "baseline_run": ("baseline",), "candidate_run": ("candidate",)},
    **{"report": ("profile",), "trace": ("profile",), "n": ("workers",), "replicates": ("repeats",)},
    **{"path": ("to",), "dir": ("to",), "folder": ("to",), "top": ("limit",)},
    **{"sequence": ("seq",), "context": ("tokens", "seq"), "context_tokens": ("tokens", "seq", "prompt")},
    **{"prompt_tokens": ("prompt",), "output_tokens": ("output",), "output": ("output_tokens",)},
    **{"dtype": ("precision", "dtypes", "weights"), "precision": ("dtype", "dtypes", "weights")},
    **{"internode_gb_s": ("network_gb_s",), "measured_step_s": ("step_s",), "job": ("job_id",)},
}
MAX_SAID = 5
MAX_ECHO = 60
MAX_REPAIRED = 600


def validate(tool: Tool, raw: Any) -> Params:
    """The tool's parameters. Raises UsageError UNKNOWN_ARGUMENT, MISSING_ARGUMENT or INVALID_ARGUMENT."""
    if not isinstance(raw, dict):
        raise UsageError("INVALID_ARGUMENT", f"Arguments of {tool.name} must be one object of names and values.")
    raw = renamed(tool, raw)
    unknown = [name for name in raw if name not in _fields(tool)]
    if unknown:
        raise _unknown(tool, raw, unknown)
    if _holds_nul(raw):
        raise UsageError("INVALID_ARGUMENT", "Text in arguments must not contain the NUL character.", expected(tool))
    try:
        # Through JSON: enumerations, paths and tuples are accepted in their JSON form, yet "3" is not an integer.
        return tool.params.model_validate_json(json.dumps(raw, allow_nan=False))
    except ValidationError as error:
        raise _invalid(tool, error) from None
    except (ValueError, TypeError, RecursionError):
        raise _not_json(tool) from None


def renamed(tool: Tool, raw: dict[str, Any]) -> dict[str, Any]:
    """The arguments under the names that the tool has for them."""
    known = other_names(tool)
    return {new if (new := known.get(name, name)) not in raw else name: value for name, value in raw.items()}


def other_names(tool: Tool) -> dict[str, str]:
    """Other names of this tool's arguments, with the tool's own."""
    fields = _fields(tool)
    first = {old: next((new for new in named if new in fields), "") for old, named in OTHER_NAMES.items()}
    return {old: new for old, new in first.items() if new and old not in fields}


def _fields(tool: Tool) -> dict[str, FieldInfo]:
    """Fields by the name that a caller uses, which may not be a Python name (`from`)."""
    return {field.alias or name: field for name, field in tool.params.model_fields.items()}


def _holds_nul(value: Any) -> bool:
    """Return True if a text contains NUL: no file name, command or stored text may, and each would fail differently."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if "\x00" in item:
                return True
        elif isinstance(item, dict):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item
    return False


def expected(tool: Tool) -> str:
    """One line naming the arguments: required ones are marked and come first, and those of all jobs come last."""
    fields = dict(
        sorted(_fields(tool).items(), key=lambda item: (item[0] in JobParams.model_fields, not item[1].is_required()))
    )
    if not fields:
        return f"{tool.name} takes no arguments."
    names = [f"{name} (required)" if field.is_required() else name for name, field in fields.items()]
    return f"Expected: {', '.join(names)}."


def echo(text: str) -> str:
    """The caller's text, bounded and on one line."""
    line = "".join(c if c.isprintable() else "�" for c in text[:MAX_ECHO])
    return line + "…" if len(text) > MAX_ECHO else line


def _unknown(tool: Tool, raw: dict[str, Any], unknown: list[str]) -> UsageError:
    near = {name: argument for name in unknown[:MAX_SAID] if (argument := _near(tool, name))}
    names = ", ".join(f"'{echo(str(name))}'" for name in unknown[:MAX_SAID])
    more = f" and {len(unknown) - MAX_SAID} more" if len(unknown) > MAX_SAID else ""
    suggestion = "".join(f"Did you mean '{argument}'? " for argument in dict.fromkeys(near.values()))
    suggestion = "".join(f"{text} " for text in foreign(tool, unknown)) or suggestion
    repaired = _repaired(tool, raw, unknown, near)
    steps = [(tool.name, repaired)] if repaired is not None else []
    hint = suggestion + expected(tool)
    return UsageError("UNKNOWN_ARGUMENT", f"{tool.name} has no argument {names}{more}.", hint, steps)


def _near(tool: Tool, name: Any) -> str | None:
    matches = difflib.get_close_matches(str(name)[:MAX_ECHO], list(_fields(tool)), n=1, cutoff=0.55)
    return matches[0] if matches else None


def _repaired(tool: Tool, raw: dict[str, Any], unknown: list[str], near: dict[str, str]) -> dict[str, Any] | None:
    """The probably intended call, only if it is valid and short."""
    if len(near) < len(unknown) or any(argument in raw for argument in near.values()):
        return None
    fixed = {near.get(name, name): value for name, value in raw.items()}
    try:
        short = len(json.dumps(fixed, allow_nan=False)) <= MAX_REPAIRED
        if short and len(fixed) == len(raw):
            validate(tool, fixed)
            return fixed
    except (UsageError, ValueError, TypeError, RecursionError):
        return None
    return None


def _not_json(tool: Tool) -> UsageError:
    message = f"Arguments of {tool.name} must be JSON: finite numbers, valid text, lists and objects of moderate depth."
    return UsageError("INVALID_ARGUMENT", message, expected(tool))


def _invalid(tool: Tool, error: ValidationError) -> UsageError:
    details = error.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return _not_json(tool)
    problems = explain(details)
    missing = [p for p in problems if p.missing]
    code = "MISSING_ARGUMENT" if len(missing) == len(problems) else "INVALID_ARGUMENT"
    lines = [problem.sentence for problem in problems]
    more = f" And {len(lines) - MAX_SAID} more." if len(lines) > MAX_SAID else ""
    return UsageError(code, " ".join(lines[:MAX_SAID]) + more, expected(tool))


# --- arguments of other benchmark tools


# name → (argument that makes the hint useful, hint)
_HINTS: dict[str, tuple[str, str]] = {
    "iterations": (
        "replicates",
        "Calls per round follow from their time; did you mean 'replicates' (process sets) or 'preset' (the effort)?",
    ),
    "warmup": (
        "replicates",
        "Nothing to set: rounds begin when the calls have become steady; did you mean 'preset' (the effort)?",
    ),
    "timeout_multiplier": ("timeout_s", "Did you mean 'timeout_s'? It is in seconds, for the whole job."),
    "reproducible": (
        "replicates",
        "Inputs are new in every call, from a secret seed. For deterministic kernels, baseline and candidate call "
        "torch.use_deterministic_algorithms(True) themselves.",
    ),
    "ncu_metric_set": ("profile", "The counters follow 'profile': minimal, deep_dive or roofline."),
    "gpu_sm_clock_mhz": ("replicates", "Clocks are watched and never set; aisp_gpu_power shows them."),
    "update_expectations": (
        "replicates",
        "Every run is stored; aisp_benchmark_compare_runs judges one against another.",
    ),
}
_SAME = {"iters": "iterations", "num_iterations": "iterations", "repeat": "iterations", "warmup_iterations": "warmup"}


def foreign(tool: Tool, names: Sequence[str]) -> list[str]:
    """Hints for unknown names that other benchmark tools use, if this tool has an equivalent."""
    texts = []
    for name in names[:5]:
        needed, hint = _HINTS.get(_SAME.get(str(name), str(name)), ("", ""))
        if hint and needed in tool.params.model_fields:
            texts.append(hint)
    return texts


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
class ArgumentProblem:
    """One invalid argument."""

    sentence: str
    missing: bool


def explain(errors: Sequence[Any]) -> list[ArgumentProblem]:
    """One problem per argument path; the branches of a union are joined with "or"."""
    groups: dict[str, list[Any]] = {}
    for error in errors:
        groups.setdefault(_argument_path(error["loc"]), []).append(error)
    return [_problem(path, group) for path, group in groups.items()]


def of_the_system(error: OSError) -> AispError | None:
    """An OSError about a full disk or one of the caller's paths as an AispError; None for any other."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:  # of a write
        return AispError("DISK_FULL", f"A file could not be written: {os.strerror(error.errno)}.", "Free space there.")
    if error.errno not in _ABOUT_A_PATH or error.filename is None:
        return None
    reason = f"{os.strerror(error.errno)}: {_bounded(str(error.filename), 200)!r}."
    return AispError("FILE_REFUSED", reason, "Give another path, or make this one usable.")


def _argument_path(loc: tuple[int | str, ...]) -> str:
    """`targets[2]`: the argument and positions in it, without the names of union branches."""
    text = str(loc[0]) if loc else "arguments"
    return text + "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))


def _problem(path: str, group: Sequence[Any]) -> ArgumentProblem:
    first = group[0]
    if first["type"] == "missing":
        return ArgumentProblem(f"'{path}' is required.", True)
    if first["type"] in ("value_error", "assertion_error"):
        return ArgumentProblem(f"'{path}': {_bounded(str(first['ctx']['error']), 300)}.".replace("..", "."), False)
    expected = " or ".join(dict.fromkeys(_expected(error) for error in group))
    return ArgumentProblem(f"'{path}' must be {expected}, not {_shown(first['input'])}.", False)


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
