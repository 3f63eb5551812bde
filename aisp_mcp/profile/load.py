"""Load a profile from a file of any known kind."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.readers.files import ProfileFile, kind_of, look
from aisp_mcp.profile.records import Profile, ProfileKind
from aisp_mcp.profile.timeline.summarize import Scope
from aisp_mcp.profile.timeline.trace import Trace


def load(path: str | Path, scope: Scope = "all", details: str | None = None) -> Profile:
    """Read and summarise. scope matters for timelines, details (a second CSV page) for ncu.

    Raises NotFound NO_PROFILE, UsageError BAD_PROFILE or WRONG_KIND, AispError TOO_LARGE.
    """
    file = look(path)
    kind = kind_of(file)
    if kind == "ncu":
        from aisp_mcp.profile.readers import ncu

        return ncu.read(file, details)
    if kind == "memory":
        from aisp_mcp.profile.readers import snapshot

        return snapshot.read(file)
    from aisp_mcp.profile.timeline import summarize

    return summarize.profile(_trace(file, kind), scope)


def load_trace(path: str | Path) -> Trace:
    """The events of a timeline that can be true, in order. Raises also UsageError WRONG_KIND."""
    file = look(path)
    return _trace(file, kind_of(file))


_EVENTS, _TRACES = 300_000, 2  # at most so many events of so many traces are kept: about 100 MiB each
_kept: dict[tuple[Path, str], Trace] = {}


def _trace(file: ProfileFile, kind: ProfileKind) -> Trace:
    """The trace in order of time. The last small ones are kept: the views of a profile ask for one trace many times."""
    key = (file.path, file.sha256)
    if (trace := _kept.get(key)) is None:
        trace = _read_trace(file, kind).ordered
        tables: tuple[Sized, ...] = (trace.gpu, trace.api, trace.operators, trace.frames, trace.ranges)
        if kind != "rocprof" and sum(len(rows) for rows in tables) <= _EVENTS:  # rocprof's tables lie in several files
            for old in list(_kept)[: len(_kept) - _TRACES + 1]:
                _kept.pop(old, None)
            _kept[key] = trace
    return trace


def _read_trace(file: ProfileFile, kind: ProfileKind) -> Trace:
    if kind == "nsys":
        from aisp_mcp.profile.readers import nsys

        return nsys.read(file)
    if kind == "kineto":
        from aisp_mcp.profile.readers import kineto

        return kineto.read(file)
    if kind == "rocprof":
        from aisp_mcp.profile.readers import rocprof

        return rocprof.read_trace(file)
    if kind == "xplane":
        from aisp_mcp.profile.readers import xplane

        return xplane.read_trace(file)
    raise wrong(file.path.name, kind, "a timeline (nsys SQLite, Kineto or JAX trace, xplane, rocprofv3)")


def wrong(name: str, kind: str, expected: str) -> UsageError:
    words = {"ncu": "an ncu page", "memory": "a memory snapshot", "stacks": "a set of stacks", "nsys": "an nsys export"}
    words |= {"flight": "a flight recorder dump", "nccl": "a log of NCCL"}
    hint = "aisp_profile_read reads it." if kind in ("flight", "nccl", "stacks") else "Choose the tool for its kind."
    return UsageError("WRONG_KIND", f"{name!r} is {words.get(kind, kind)}; this needs {expected}.", hint)
