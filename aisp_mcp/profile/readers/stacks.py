"""Weighted stacks of sampling profilers: collapsed text, speedscope, and the output of `perf script`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aisp_mcp.profile.readers.files import PERF_SAMPLE, ProfileFile, bad, is_perf, read
from aisp_mcp.profile.readers.kineto import load_json, number
from aisp_mcp.profile.readers.text import clean

Stacks = dict[tuple[str, ...], int]
_DEPTH = 200
MAX_STACKS = 200_000
NO_FRAMES = "[no frames]"
_PERF_FRAME = re.compile(r"^\s+[0-9a-f]+\s+(.*?)(?:\s+\(([^()]*(?:\([^()]*\))?[^()]*)\))?\s*$")
_PERF_EVENT = re.compile(r"(?:\d+\s+)?(\S.*?)(?::[a-zA-Z]+)?:(?:\s|$)")  # period, event and modifiers
_PERF_TIME = re.compile(r"(?:cpu[\w-]*/)?(?:cpu-)?cycles|cpu-clock|task-clock")
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
_EVENTED_UNITS = {"nanoseconds": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}


def weighted(file: ProfileFile, notes: list[str] | None = None) -> tuple[Stacks, str]:
    """Self weight per stack, outermost frame first, and its unit: samples, nanoseconds or the file's own.

    notes: gets sentences about what was left out.
    Raises UsageError BAD_PROFILE, AispError TOO_LARGE.
    """
    if file.head.lstrip()[:1] == b"{":
        return _speedscope(load_json(file))
    text = read(file).decode("utf-8", "replace")
    return _perf(text, [] if notes is None else notes) if is_perf(file.head) else (_collapsed(text), "samples")


def _add(weights: Stacks, stack: tuple[str, ...], weight: int) -> None:
    weights[stack] += weight
    if len(weights) > MAX_STACKS:
        raise bad(f"More than {MAX_STACKS:,} different stacks.", "Record fewer samples, or only one process.")


def _collapsed(text: str) -> Stacks:
    """`outer;inner 42` per line, as py-spy and the scripts for perf write."""
    weights: Stacks = defaultdict(int)
    for line_number, line in enumerate(text.splitlines(), 1):
        stack, _, weight = line.rstrip().rpartition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if not stack and line.startswith(" "):
            stack = NO_FRAMES  # py-spy's line for a sample of a thread without Python frames
        if not stack or not (weight.isascii() and weight.isdigit() and len(weight) < 19):
            raise bad(
                f"Line {line_number} of the collapsed stacks does not end in a number.",
                "Each line is `outer;inner COUNT`; make it with stackcollapse-perf.pl or `py-spy record -f raw`.",
            )
        _add(weights, tuple(clean(frame, 512) for frame in stack.split(";")[:_DEPTH]), int(weight))
    return dict(weights)


def _perf(text: str, notes: list[str]) -> tuple[Stacks, str]:
    """One sample each, whatever its period: the command, then the frames, outermost first.

    Samples of different events have no common unit: only those of one are returned, of time if an event counts it.
    """
    by_event: dict[str, Stacks] = {}
    frames: list[str] = []
    command, event = None, ""
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if command is not None:
                _add(by_event.setdefault(event, defaultdict(int)), (command, *reversed(frames[:_DEPTH])), 1)
            command, event, frames = None, "", []
        elif frame := _PERF_FRAME.match(line):
            command = command or "[unknown]"  # the line that names the command can be hidden by a comment
            name = _OFFSET.sub("", frame[1])
            frames.append(clean(name if name != "[unknown]" else f"[unknown] {frame[2] or ''}".strip(), 512))
        elif command is None and not line.startswith("#") and (sample := PERF_SAMPLE.match(line)):
            command = clean(sample[1], 120)
            named = _PERF_EVENT.match(sample[4])
            event = clean(named[1], 80) if named else ""
    if not by_event:
        raise bad(
            "The output of `perf script` contains no sample.", "Record with `perf record -g`, then `perf script`."
        )
    chosen = next((name for name in by_event if _PERF_TIME.match(name)), next(iter(by_event)))
    weights = dict(by_event.pop(chosen))
    if not by_event:
        return weights, "samples"
    others = ", ".join(f"{sum(rows.values()):,} of {name or 'no named event'}" for name, rows in by_event.items())
    notes.append(f"Samples of other events are left out: {clean(others, 300)}.")
    return weights, f"samples of {chosen}"


def _speedscope(top: Any) -> tuple[Stacks, str]:
    """All profiles of a speedscope file, added up."""
    weights: Stacks = defaultdict(int)
    unit = "samples"
    try:
        frames = [clean(f["name"], 512) for f in top["shared"]["frames"]]
        for profile in top["profiles"]:
            unit = clean(profile.get("unit", unit), 20)
            # Fractions of a second are converted to nanoseconds.
            scale = _EVENTED_UNITS.get(unit, 1.0)
            rows = _sampled(profile) if profile["type"] == "sampled" else _evented(profile)
            for stack, weight in rows:
                _add(weights, tuple(frames[i] for i in stack[:_DEPTH]), round(weight * scale))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise bad(
            f"The file does not follow the speedscope format: {clean(error, 100)}.",
            "Check it against https://www.speedscope.app/file-format-schema.json.",
        ) from error
    weights.pop((), None)
    return dict(weights), "nanoseconds" if unit in _EVENTED_UNITS else "samples" if unit == "none" else unit


def _sampled(profile: dict[str, Any]) -> Iterator[tuple[list[int], float]]:
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        yield sample, number(weight) or 0.0


def _evented(profile: dict[str, Any]) -> Iterator[tuple[list[int], float]]:
    """Assign the time between two events as self time to the frames that are open then."""
    stack: list[int] = []
    last = number(profile["startValue"]) or 0.0
    for event in profile["events"]:
        now = number(event["at"])
        if now is None or now < last:
            raise ValueError("its events are not in order of time")
        if stack and now > last:
            yield list(stack), now - last
        last = now
        if event["type"] == "O":
            stack.append(event["frame"])
        elif not stack or stack.pop() != event["frame"]:
            raise ValueError("a frame is closed that is not the innermost open one")
    if stack:
        raise ValueError("a frame is never closed")
