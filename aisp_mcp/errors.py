"""The errors that a user can see.

AispError                  code, message, hint, next_steps, exit_code
├── UsageError             the call itself is wrong (exit code 2)
│   └── UnknownTool        no such tool: a protocol error, not a tool result
├── NotFound               a named thing does not exist: job, run, target, file
├── Unavailable            something is missing on this machine: NO_GPU, NOT_INSTALLED, NEEDS_MULTI_GPU, …
├── Refused                possible, but not allowed: a path outside the roots, a confirmation missing
├── StoreError             the database or the disk under it: STORE_FULL, STORE_CORRUPT, STORE_NEWER, STORE_BUSY
├── ProcessError           a child process failed: TIMEOUT, CRASHED, OUTPUT_LIMIT
└── BenchmarkError         a benchmark file is wrong: UNREADABLE, RAISED, BAD_OUTPUT, …

Every error carries a stable upper-case code, one sentence for a person, a hint that says what to do, and next steps
that are valid calls on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class AispError(Exception):
    """Base of all errors that are answers. Any other exception that escapes a tool is a bug and is reported as
    INTERNAL.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        next_steps: Sequence[tuple[str, dict[str, Any]]] = (),
    ) -> None:
        """next_steps: pairs of (tool name, arguments), each a call that would succeed or give more information."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.next_steps = tuple(next_steps)


class UsageError(AispError):
    """The caller's arguments are invalid."""

    exit_code = 2


class UnknownTool(UsageError):
    """No tool has that name."""


class NotFound(AispError):
    """A named thing does not exist."""


class Unavailable(AispError):
    """Something the tool needs is missing on this machine; the message names it."""


class Refused(AispError):
    """Not permitted: outside the permitted roots, or a confirmation is missing."""


class StoreError(AispError):
    """The database, or the disk under it, failed."""


class ProcessError(AispError):
    """A child process failed."""


class BenchmarkError(AispError):
    """A benchmark or candidate file is not usable."""


# Codes of generators and checkers of the user that cannot decide anything: no candidate was judged.
CANNOT_DECIDE = frozenset(
    {
        "CHECKER_ACCEPTS",
        "CHECKER_RAISED",
        "CHECKER_REFUSES",
        "MADE_LARGER",
        "MAKER_RAISED",
        "MAKER_VARIES",
        "MADE_OTHERS",
        "NOT_MADE",
        "OWN_FILE",
    }
)
