"""Environment variables a caller may set for the ranks: those that steer a collective library. They are disclosed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.records.verdict import Flag

PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
NAMES = ("OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG")
FIXED = (  # set by the harness: the process group of a program, and its loopback
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
)
MAX_CHARS = 200
_VARIABLE = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[\x20-\x7e]*)")
Variables = tuple[tuple[str, str], ...]


def read(texts: Sequence[str]) -> Variables:
    """Names and values of texts such as NCCL_ALGO=Ring, the last one of a name. Raises UsageError BAD_RANK_ENV."""
    return tuple(sorted(dict(map(_assignment, texts)).items()))


def _assignment(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None or len(match["value"]) > MAX_CHARS:
        raise _bad(f"{text[:60]!r} is not a variable with a value.", "Write NAME=VALUE, such as NCCL_ALGO=Ring.")
    name, value = match["name"], match["value"]
    if name in FIXED:
        raise _bad(f"The harness sets {name}: each program has its own ranks and loopback.", "Leave it out.")
    if name not in NAMES and not name.startswith(PREFIXES):
        some = ", ".join([*(f"{prefix}*" for prefix in PREFIXES), *NAMES])
        hint = f"Ranks may be given {some}. Set others in the program."
        raise _bad(f"Ranks see no variable {name[:60]} of their caller.", hint)
    if name == "OMP_NUM_THREADS" and not (value.isdecimal() and 0 < int(value) < 1000):
        raise _bad(f"OMP_NUM_THREADS={value[:20]} is not a number of threads.", "OMP_NUM_THREADS=1")
    return name, value


def _bad(message: str, hint: str) -> UsageError:
    return UsageError("BAD_RANK_ENV", message, hint)


def note(variables: Variables) -> list[Flag]:
    """The flag that discloses them with a verdict, if there are any."""
    if not variables:
        return []
    assignments = ", ".join(f"{name}={value}" for name, value in variables)
    message = f"The ranks of baseline and candidate ran with {assignments}."
    return [Flag(code="rank_env", severity="note", message=message, evidence=dict(variables))]
