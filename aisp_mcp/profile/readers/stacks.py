"""Weighted stacks of sampling profilers: collapsed text, speedscope, Firefox's format, the output of `perf script`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.readers import firefox
from aisp_mcp.profile.readers.files import PERF_SAMPLE, PERF_UNTIMED, ProfileFile, bad, is_perf, read
from aisp_mcp.profile.readers.kineto import load_json, number
from aisp_mcp.profile.readers.text import clean

Stacks = dict[tuple[str, ...], int]
_DEPTH = 200
MAX_STACKS = 200_000
NO_FRAMES = "[no frames]"
UNNAMED = "samples (or another unit: the file names none)"
_PERF_FRAME = re.compile(r"^\s+[0-9a-f]+\s+(.*?)(?:\s+\(([^()]*(?:\([^()]*\))?[^()]*)\))?\s*$")
_TWO = re.compile(r"(.*\S) (\d{1,18})$", re.A)
_PERF_EVENT = re.compile(r"(?:(\d{1,18})\s+)?(\S.*?)(?::[a-zA-Z]+)?:(?:\s|$)")  # period, event and modifiers
_PERF_TIME = re.compile(r"(?:cpu[\w-]*/)?(?:cpu-)?cycles|cpu-clock|task-clock")
_MOST_OPEN = 0.9  # of a profile's span; below it, the weights are not the program's whole time
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
_EVENTED_UNITS = {"nanoseconds": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}


def weighted(file: ProfileFile, notes: list[str] | None = None) -> tuple[Stacks, str]:
    """Self weight per stack, outermost frame first, and its unit: samples, nanoseconds, the file's own, or UNNAMED.

    notes: gets sentences about what was left out.
    Raises UsageError BAD_PROFILE, AispError TOO_LARGE.
    """
    notes = [] if notes is None else notes
    if file.head.lstrip()[:1] == b"{":
        top = load_json(file)
        return _firefox(top, notes) if b'"$schema"' not in file.head and "threads" in top else _speedscope(top, notes)
    text = read(file).decode("utf-8", "replace")
    return _perf(text, notes) if is_perf(file.head) else (_collapsed(text, notes), UNNAMED)


def _add(weights: Stacks, stack: tuple[str, ...], weight: int) -> None:
    weights[stack] += weight
    if len(weights) > MAX_STACKS:
        raise bad(f"More than {MAX_STACKS:,} different stacks.", "Record fewer samples, or only one process.")


def _collapsed(text: str, notes: list[str]) -> Stacks:
    """`outer;inner 42` per line, as py-spy and the scripts for perf write; of difffolded text, the second number."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    # py-spy's line for a sample of a thread without Python frames is a space and the number.
    parts = [(stack.rstrip() or NO_FRAMES, weight) for stack, gap, weight in (x.rpartition(" ") for x in lines) if gap]
    rows = [(stack, weight) for stack, weight in parts if weight.isascii() and weight.isdigit() and len(weight) < 19]
    if not rows:
        raise bad(
            "No line of the collapsed stacks ends in a number.",
            "Each line is `outer;inner COUNT`; make it with stackcollapse-perf.pl or `py-spy record -f raw`.",
        )
    if len(rows) < len(lines):
        notes.append(f"{len(lines) - len(rows):,} of {len(lines):,} lines do not end in a number: left out.")
    pairs = [_TWO.match(stack) for stack, _ in rows]
    if len(rows) > 1 and all(pairs):
        rows = [(pair[1], weight) for pair, (_, weight) in zip(pairs, rows, strict=True) if pair]
        notes.append("Each line ends in two numbers, as difffolded.pl writes them: the second is used.")
    weights: Stacks = defaultdict(int)
    for stack, weight in rows:
        _add(weights, tuple(clean(frame, 512) for frame in stack.split(";")[:_DEPTH]), int(weight))
    return dict(weights)


def _perf(text: str, notes: list[str]) -> tuple[Stacks, str]:
    """The command, then the frames, outermost first. A sample weighs its period if periods differ, as with `perf
    record -F`; else each counts once.

    Samples of different events have no common unit: only those of one are returned, of time if an event counts it.
    """
    by_event: dict[str, dict[int | None, Stacks]] = {}
    frames: list[str] = []
    command, event, period = None, "", None

    def add() -> None:
        if command is not None:
            stacks = by_event.setdefault(event, {}).setdefault(period, defaultdict(int))
            _add(stacks, (command, *reversed(frames[:_DEPTH])), 1)

    bare = False  # an empty line follows the sample's own: its frames may follow that, as some versions write
    for line in text.splitlines():
        if not line.strip():
            bare = command is not None and not frames
            if bare:
                continue
            add()
            command, event, period, frames = None, "", None, []
        elif frame := _PERF_FRAME.match(line):
            command = command or "[unknown]"  # the line that names the command can be hidden by a comment
            name = _OFFSET.sub("", frame[1])
            frames.append(clean(name if name != "[unknown]" else f"[unknown] {frame[2] or ''}".strip(), 512))
        elif (
            (command is None or (bare and not frames))
            and not line.startswith("#")
            and (sample := PERF_SAMPLE.match(line) or PERF_UNTIMED.match(line))
        ):
            add()
            bare = False
            command = clean(sample[1], 120)
            named = _PERF_EVENT.match(sample[4])
            event, period = (clean(named[2], 80), int(named[1]) if named[1] else None) if named else ("", None)
    add()
    if not by_event:
        raise bad(
            "The output of `perf script` contains no sample.", "Record with `perf record -g`, then `perf script`."
        )
    chosen = next((name for name in by_event if _PERF_TIME.match(name)), next(iter(by_event)))
    by_period = by_event.pop(chosen)
    differ = len(by_period) > 1 and None not in by_period
    weights: Stacks = defaultdict(int)
    for period, counts in by_period.items():
        for stack, many in counts.items():
            _add(weights, stack, many * (period or 1) if differ else many)
    if by_event:
        rest = {name: sum(sum(rows.values()) for rows in periods.values()) for name, periods in by_event.items()}
        others = ", ".join(f"{many:,} of {name or 'no named event'}" for name, many in rest.items())
        notes.append(f"Samples of other events are left out: {clean(others, 300)}.")
    if differ:
        return dict(weights), "nanoseconds" if "clock" in chosen else chosen
    return dict(weights), f"samples of {chosen}" if by_event else "samples"


def _speedscope(top: Any, notes: list[str]) -> tuple[Stacks, str]:
    """The profiles of a speedscope file that have one unit, added up: time if any has. Damaged ones are left out."""
    by_unit: dict[str, Stacks] = {}
    reasons: list[str] = []
    try:
        frames = [clean(f["name"], 512) for f in top["shared"]["frames"]]
        profiles = list(top["profiles"])
    except (KeyError, TypeError) as error:
        raise _no_speedscope(error) from error
    for profile in profiles:
        try:
            unit = clean(profile.get("unit", "none"), 20)
            rows = list(_sampled(profile, notes) if profile["type"] == "sampled" else _evented(profile, notes))
            found = [(tuple(frames[i] for i in stack[:_DEPTH]) or (NO_FRAMES,), weight) for stack, weight in rows]
        except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
            reasons.append(clean(error, 100))
            continue
        # Fractions of a second are converted to nanoseconds.
        scale = _EVENTED_UNITS.get(unit, 1.0)
        unit = "nanoseconds" if unit in _EVENTED_UNITS else UNNAMED if unit == "none" else unit
        weights = by_unit.setdefault(unit, defaultdict(int))
        for stack, weight in found:
            _add(weights, stack, round(weight * scale))
    if reasons and len(reasons) == len(profiles):
        raise _no_speedscope(reasons[0])
    if reasons:
        notes.append(f"{len(reasons):,} of {len(profiles):,} profiles are damaged and left out: {reasons[0]}.")
    return _of_one_unit(by_unit, notes)


def _no_speedscope(why: object) -> UsageError:
    return bad(
        f"The file does not follow the speedscope format: {clean(why, 100)}.",
        "Check it against https://www.speedscope.app/file-format-schema.json.",
    )


def _of_one_unit(by_unit: dict[str, Stacks], notes: list[str]) -> tuple[Stacks, str]:
    """Weights of time if any has that unit, else of the first unit."""
    unit = "nanoseconds" if "nanoseconds" in by_unit else next(iter(by_unit), UNNAMED)
    if others := [name for name in by_unit if name != unit]:
        notes.append(f"Weights in other units are left out: {', '.join(others)}.")
    return dict(by_unit.get(unit, {})), unit


def _firefox(top: Any, notes: list[str]) -> tuple[Stacks, str]:
    by_unit: dict[str, Stacks] = {}
    try:
        for unit, stack, weight in firefox.rows(top, _DEPTH, notes):
            _add(
                by_unit.setdefault(unit, defaultdict(int)),
                stack if len(stack) > 1 else (*stack, NO_FRAMES),
                round(weight),
            )
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise bad(
            f"The file is a profile of Firefox or samply that cannot be read: {clean(error, 100)}.",
            "Open it on profiler.firefox.com and save it again, which writes the form that is read here.",
        ) from error
    return _of_one_unit(by_unit, notes)


def _sampled(profile: dict[str, Any], notes: list[str]) -> Iterator[tuple[list[int], float]]:
    samples, weights = profile["samples"], profile["weights"]
    if len(samples) != len(weights):
        notes.append(f"There are {len(weights):,} weights for {len(samples):,} samples: the rest is left out.")
    pairs = [(sample, number(weight) or 0.0) for sample, weight in zip(samples, weights, strict=False)]
    if negative := sum(weight < 0 for _, weight in pairs):
        notes.append(f"{negative:,} of {len(pairs):,} samples have a negative weight: left out.")
    yield from (pair for pair in pairs if pair[1] >= 0)


def _evented(profile: dict[str, Any], notes: list[str]) -> Iterator[tuple[list[int], float]]:
    """Assign the time between two events as self time to the frames that are open then."""
    stack: list[int] = []
    last = number(profile["startValue"]) or 0.0
    begin, end, covered = last, number(profile.get("endValue")) or last, 0.0
    for event in profile["events"]:
        now = number(event["at"])
        if now is None or now < last:
            raise ValueError("its events are not in order of time")
        if stack and now > last:
            covered += now - last
            yield list(stack), now - last
        last = now
        if event["type"] == "O":
            stack.append(event["frame"])
        elif not stack or stack.pop() != event["frame"]:
            raise ValueError("a frame is closed that is not the innermost open one")
    if stack:
        many = f"{len(stack):,} frames were" if len(stack) > 1 else "1 frame was"
        notes.append(f"{many} still open when the recording ended, and last until then.")
        covered += max(0.0, end - last)
        yield list(stack), max(0.0, end - last)
    if 0.0 < covered < _MOST_OPEN * (end - begin):
        share = 100 * (1 - covered / (end - begin))
        notes.append(f"No frame is open for {share:.3g} % of the time that the file says it covers.")
