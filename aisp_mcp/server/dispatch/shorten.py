"""The last step of every answer: bounded in size, honest about what is missing, with the way to the rest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aisp_mcp.envelope import Envelope, ErrorInfo, Truncated
from aisp_mcp.server.context import LOCAL
from aisp_mcp.server.dispatch.envelopes import to_json
from aisp_mcp.server.dispatch.trim import Cut, Notes, trim
from aisp_mcp.settings import Settings

# Inner items, characters of a text, keys, characters of a row's particular, levels.
_HARSH = ((5, 200, 60, 80, 100), (3, 100, 40, 80, 8), (2, 60, 20, 40, 5), (1, 40, 8, 20, 3), (1, 30, 4, 2, 1))
FLOOR, CEILING = 1_500, 32_000
ANSWERS_KEPT = 200
_BIG = 1 << 40


def shorten(envelope: Envelope, settings: Settings, principal: str = LOCAL) -> Envelope:
    """The envelope within AISP_MCP_PREVIEW_LIMIT characters of JSON (at least 1,500, at most 32,000).

    Lists longer than AISP_MCP_PREVIEW_ITEMS are cut first, then long texts, then lists within lists, then the rest;
    the mildest cut that fits wins. The full answer is kept for the principal, and `truncated.how_to_get` says where.
    """
    limit = min(max(settings.preview_limit, FLOOR), CEILING)
    full = to_json(envelope)
    if len(full) <= limit and not _long_lists(envelope.result, settings.preview_items):
        return envelope
    how = _keep(full, settings.home, principal)
    for cut in _gentle(settings.preview_items):
        shorter = _apply(envelope, cut, how)
        if len(to_json(shorter)) <= limit:
            return shorter
    return _harsh(envelope, settings.preview_items, limit, how)


def _gentle(items: int) -> Iterator[Cut]:
    """All outer items stay; texts, inner lists and then the particulars of rows get shorter step by step."""
    for text in (_BIG, 4000, 2000, 1000, 500):
        yield Cut(items, items, text, _BIG)
    for inner, text, keys in ((20, 500, 200), (10, 300, 100), (5, 300, 60), (5, 160, 60)):
        yield Cut(items, min(inner, items), text, keys)
    for detail in (1000, 500, 200, 80):
        yield Cut(items, min(5, items), 300, 60, detail)


def _harsh(envelope: Envelope, items: int, limit: int, how: str) -> Envelope:
    """Fewer outer items, as many as fit; at the very end only what the answer is about."""
    for inner, text, keys, detail, depth in _HARSH:
        best: Envelope | None = None
        low, high = 1, items
        while low <= high:
            outer = (low + high) // 2
            shorter = _apply(envelope, Cut(outer, min(inner, outer), text, keys, detail, depth), how)
            if len(to_json(shorter)) <= limit:
                best, low = shorter, outer + 1
            else:
                high = outer - 1
        if best is not None:
            return best
    return _bare(envelope, how)


def _apply(envelope: Envelope, cut: Cut, how: str) -> Envelope:
    notes = Notes()
    result = trim(envelope.result, cut, "result", notes)
    error = envelope.error and _error(envelope.error, cut, notes)
    nonfinite = envelope.nonfinite and [path[: max(cut.text, 60)] for path in envelope.nonfinite[: cut.outer]]
    return _with(envelope, notes.lines(), how, result=result, error=error, nonfinite=nonfinite)


def _error(error: ErrorInfo, cut: Cut, notes: Notes) -> ErrorInfo:
    """The code always stays. A next step stays whole or goes and is counted: a cut call would not be valid."""
    text = max(cut.text, 200)
    steps = [step for step in error.next_steps if len(step.model_dump_json()) <= text]
    if len(steps) < len(error.next_steps):
        notes.add("error.next_steps", f"{len(steps)} of {len(error.next_steps)} items")
    if len(steps) > cut.outer:
        notes.add("error.next_steps", f"{cut.outer} of {len(steps)} items")
    return ErrorInfo(
        code=error.code[:80],
        message=trim(error.message, Cut(1, 1, text, 1), "error.message", notes),
        hint=error.hint and trim(error.hint, Cut(1, 1, text, 1), "error.hint", notes),
        next_steps=steps[: cut.outer],
    )


def _bare(envelope: Envelope, how: str) -> Envelope:
    """Nothing but the outcome fits."""
    notes = Notes()
    error = envelope.error and _error(envelope.error, Cut(1, 1, 200, 1), notes)
    what = [*notes.lines(), "result: left out"] if envelope.result is not None else notes.lines()
    return _with(envelope, what, how, result=None, error=error, nonfinite=None)


def _with(envelope: Envelope, what: list[str], how: str, **parts: Any) -> Envelope:
    return envelope.model_copy(update={**parts, "truncated": Truncated(what=what, how_to_get=how) if what else None})


def _long_lists(value: Any, items: int) -> bool:
    if isinstance(value, list):
        return len(value) > items or any(_long_lists(item, items) for item in value)
    if isinstance(value, dict):
        return any(_long_lists(item, items) for item in value.values())
    return False


def kept_in(home: Path, principal: str) -> Path:
    """The folder of a principal's full answers."""
    folder = home / "answers"
    return folder if principal == LOCAL else folder / quote(principal, safe="")


def _keep(full: str, home: Path, principal: str) -> str:
    """Write the full answer, named by its content, and say how to get it; a path is of no use to a remote caller."""
    folder = kept_in(home, principal)
    said = full.rpartition(',"meta":')[0]
    path = folder / f"{hashlib.blake2b(said.encode(), digest_size=10).hexdigest()}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.touch(mode=0o600)
        partial.write_text(full, encoding="utf-8")
        partial.replace(path)
        _sweep(folder)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return f"The full answer could not be kept ({reason}): ask for less, or raise AISP_MCP_PREVIEW_LIMIT."
    resource = f"the resource aisp://answers/{path.name}"
    if principal != LOCAL:
        return f"The full answer ({len(said)} characters) is {resource}"
    where = str(path) if len(str(path)) <= 400 else f"answers/{path.name} under AISP_HOME"
    return f"The full answer ({len(said)} characters) is the file {where}, over MCP {resource}"


def _age(path: Path) -> float:
    """Seconds, negative, newest first; a file another process just removed counts as newest."""
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")


def _sweep(folder: Path) -> None:
    """Keep the newest answers only."""
    if len(os.listdir(folder)) <= ANSWERS_KEPT:
        return
    with os.scandir(folder) as entries:
        kept = sorted((Path(e.path) for e in entries if e.name.endswith(".json")), key=_age)
    for old in kept[ANSWERS_KEPT:]:
        old.unlink(missing_ok=True)
