"""Build envelopes, the form of every answer, and write them as JSON."""

from __future__ import annotations

import json
import logging
import math
import secrets
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from aisp_mcp import __version__
from aisp_mcp.envelope import Envelope, ErrorInfo, Meta, NextStep, Status, Ticket
from aisp_mcp.errors import AispError
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")


class Stopwatch:
    """Milliseconds since a call began, by the context's clock."""

    def __init__(self, ctx: Context) -> None:
        self._clock = ctx.clock
        self._began = ctx.clock()

    def meta(self) -> Meta:
        """Facts about an answer that has just been finished."""
        now = self._clock()
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Meta(duration_ms=round((now - self._began) * 1000, 3), version=__version__, at=at)


def success(tool: str, result: Any, watch: Stopwatch) -> Envelope:
    """The answer that carries a result."""
    data, nonfinite = plain(result)
    return Envelope(tool=tool, status=Status.OK, result=data, nonfinite=nonfinite or None, meta=watch.meta())


def failure(tool: str, error: AispError, watch: Stopwatch, job: Ticket | None = None) -> Envelope:
    """The answer for a failed call: the reason, and a remedy."""
    info = ErrorInfo(
        code=error.code,
        message=plain(error.message)[0],
        hint=error.hint and plain(error.hint)[0],
        next_steps=[NextStep(tool=name, args=plain(args)[0]) for name, args in error.next_steps],
        kind=type(error).__name__,
    )
    return Envelope(tool=tool, status=Status.ERROR, error=info, job=job, meta=watch.meta())


def internal(tool: str, error: BaseException, watch: Stopwatch) -> Envelope:
    """A bug in aisp: the traceback goes to the log, and the caller gets the incident number."""
    incident = secrets.token_hex(4)
    log.error("incident %s in %s", incident, tool, exc_info=error)
    shown = AispError(
        "INTERNAL",
        f"{tool} failed unexpectedly with {type(error).__name__} (incident {incident}).",
        f"This is a bug. The traceback is on the standard error of this process, under incident {incident}.",
    )
    return failure(tool, shown, watch)


def to_data(envelope: Envelope) -> dict[str, Any]:
    """The envelope as JSON data; absent parts are left out, but a null inside the result stays."""
    data: dict[str, Any] = {"tool": envelope.tool, "status": envelope.status.value}
    if envelope.result is not None:
        data["result"] = envelope.result
    if envelope.confirm is not None:
        data["confirm"] = envelope.confirm
    for name in ("error", "job", "truncated"):
        part = getattr(envelope, name)
        if part is not None:
            hidden = {"kind"} if name == "error" else None
            data[name] = part.model_dump(mode="json", exclude_none=True, exclude_defaults=bool(hidden), exclude=hidden)
    if envelope.nonfinite:
        data["nonfinite"] = envelope.nonfinite
    data["meta"] = envelope.meta.model_dump(mode="json")
    return data


def to_json(envelope: Envelope) -> str:
    """Compact JSON, the same text on every front."""
    return json.dumps(to_data(envelope), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


MAX_PATHS = 20


def plain(value: Any) -> tuple[Any, list[str]]:
    """JSON data of a record, and the paths of numbers that were NaN or infinite and became null.

    Raises pydantic's PydanticSerializationError for a value that has no JSON form, which is a bug of the tool.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    paths: list[str] = []
    clean = _clean(value, "", paths)
    if len(paths) > MAX_PATHS:
        paths = [*paths[:MAX_PATHS], f"and {len(paths) - MAX_PATHS} more"]
    return clean, paths


def _clean(value: Any, path: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        return {_text(str(k)): _clean(v, f"{path}.{k}" if path else str(k), paths) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, f"{path}[{i}]", paths) for i, item in enumerate(value)]
    if isinstance(value, BaseModel):
        return _clean(value.model_dump(mode="json"), path, paths)
    if isinstance(value, float) and not math.isfinite(value):
        paths.append(_text(path))
        return None
    if isinstance(value, str):
        return _text(value)
    return value


def _text(text: str) -> str:
    """Replace lone surrogates: file names may contain bytes that are not UTF-8, JSON must not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
