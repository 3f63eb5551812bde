"""Names, tags and notes of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aisp_mcp.errors import UsageError
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run

_NAME = re.compile(r"[\w][\w.+/ -]{0,59}")
_TAKEN = re.compile(r"last(~\d*)?|[jr]_.*")  # names that already mean another run


def require_valid(name: str, tags: Sequence[str]) -> None:
    """Refuse names that could not be typed or would mean another run. Raises UsageError BAD_NAME."""
    for text in [*([name] if name else []), *tags]:
        if not _NAME.fullmatch(text):
            raise UsageError("BAD_NAME", f"{text[:60]!r} cannot be a name or tag.", "Use letters, digits, . + - / _.")
    if _TAKEN.fullmatch(name):
        raise UsageError("BAD_NAME", f"{name!r} already refers to a run.", "Choose another name.")


def labelled(ctx: Context, run: Run, name: str, tags: Sequence[str], note: str | None = None) -> Run:
    """The run with these labels, stored again if they differ. Raises UsageError BAD_NAME."""
    require_valid(name, tags)
    unique = list(dict.fromkeys(tags))
    changed = run.model_copy(update={"name": name, "tags": unique, "note": run.note if note is None else note})
    if changed != run:
        ctx.store.relabel_run(changed)
    return changed
