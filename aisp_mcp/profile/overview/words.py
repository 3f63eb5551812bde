"""Sentences about a profile: what ran, why the device was idle, which kernels matter, what to try first."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from aisp_mcp.envelope import NextStep
from aisp_mcp.errors import UnknownTool
from aisp_mcp.profile.readers.text import duration, shorten
from aisp_mcp.profile.records import Breakdown, Insight, MemoryProfile, NcuKernel, OpStat, Profile, Statement, Timeline
from aisp_mcp.profile.timeline.attribution import NOT_SAID
from aisp_mcp.server import registry

_SHOWN = 3
_SMALL = 0.01  # replays of graphs get a sentence from this share of the device work on
_LARGE = 0.1  # a wait for the data loader gets a sentence from this share of the window on
_LOADER = "enumerate(DataLoader)#"  # torch's range around each call of a data loader
_WRAPPER = "autograd::engine::evaluate_function: "  # repeats the time of the operator it calls
_FILES = {"traces", "profile"}
_RECORDS = {"aisp_profile_torch", "aisp_profile_nsys", "aisp_profile_ncu"}
_CAUSES: tuple[tuple[str, str], ...] = (
    ("idle_host_ns", "the host had not launched the next operation yet"),
    ("idle_kernel_ns", "the next operation was queued already, in pauses of at most 10 us"),
    ("idle_dependency_ns", "the next operation's stream was waiting for an event"),
    ("idle_other_ns", "the next operation had been launched, and no record shows what it waited for"),
    (
        "idle_unknown_ns",
        "the cause is unknown: the file lacks the launch of the next operation, or what ran, or has wrong times",
    ),
    ("idle_edge_ns", "it was before the first or after the last operation of a device"),
)


def opening(profile: Profile, insights: list[Insight], judged: Profile | None = None) -> list[Statement]:
    """One to five sentences, most important first; empty for a profile without tables.

    judged: the part of the profile that the insights are about, if not all of it.
    """
    if profile.timeline is not None:
        statements = _device(profile) if profile.timeline.breakdown else _host(profile)
    elif profile.kernels:
        statements = _launches(profile.kernels)
    else:
        statements = [_memory(at, row) for at, row in enumerate(profile.memory[:_SHOWN])]
    return statements + _advice(judged or profile, insights)


def of_stacks(
    stacks: Mapping[tuple[str, ...], int], unit: str, notes: Sequence[str] = (), table: str = "frames"
) -> list[Statement]:
    """The same for weighted stacks. notes: what was left out. table: the answer's rows of frames."""
    whole = sum(stacks.values())
    own: dict[str, int] = {}
    for stack, weight in stacks.items():
        own[stack[-1]] = own.get(stack[-1], 0) + weight
    if not whole:
        return [Statement(text="The profile contains no weights.", rows=[])]
    ranked = sorted(own, key=lambda name: (-own[name], name))[:_SHOWN]
    amount = duration(whole) if unit == "nanoseconds" else f"{whole:,} {unit}" if whole != 1 else f"1 {_one(unit)}"
    hot = "; ".join(f"{shorten(name, 80)} {_percent(own[name], whole)}" for name in ranked)
    several = "1 stack" if len(stacks) == 1 else f"{len(stacks):,} different stacks"
    text = f"The profile contains {amount} in {several}; largest self weights: {hot}."
    text = " ".join([text, *notes])
    return [Statement(text=text, rows=[f"{table}[{at}]" for at in range(len(ranked))])]


def _one(unit: str) -> str:
    return unit.replace("samples", "sample", 1)


def of_flops(total: int | None, whole_us: float, rows: Sequence[tuple[str, int, float]]) -> Statement:
    """The FLOPs of a recording. rows: (name, calls, own time) of operators that torch has no formula for, by time."""
    counted = f"{total:,} FLOPs were counted" if total else "No FLOPs were counted"
    share = _percent(sum(us for _, _, us in rows), whole_us)
    if not rows:
        return Statement(text=f"{counted}: torch has a formula for every operator that computes.", rows=["total_flops"])
    listed = "; ".join(f"{shorten(name, 60)} ({duration(us * 1e3)}, count {n:,})" for name, n, us in rows[:_SHOWN])
    text = f"{counted}, a lower bound: torch has no formula for operators with {share} of the operators' time: {listed}"
    text += "." if len(rows) <= _SHOWN else "; …"
    shown = range(min(len(rows), _SHOWN))
    return Statement(text=text, rows=["total_flops", *(f"uncounted[{at}].self_us" for at in shown)])


def _percent(part: float, whole: float) -> str:
    value = 100 * part / whole if whole else 0.0
    whole_number = 9.95 <= value < 98.95 or value >= 99.95 or not part
    return f"{value:.0f} %" if whole_number else f"{value:.1f} %" if value >= 0.1 else "below 0.1 %"


def _timeline(profile: Profile) -> Timeline:
    assert profile.timeline is not None
    return profile.timeline


def _window(profile: Profile) -> tuple[str, str]:
    assert profile.window is not None
    return duration(profile.window.duration_ns), profile.window.definition


def _device(profile: Profile) -> list[Statement]:
    timeline = _timeline(profile)
    rows, (length, definition) = timeline.breakdown, _window(profile)
    span = sum(row.span_ns for row in rows)
    names = {d.index: d.name for d in profile.devices}
    name = names.get(rows[0].device)
    same = name if all(names.get(row.device) == name for row in rows) else None
    subject = (same or "the device") if len(rows) == 1 else f"{len(rows)} devices" + (f" ({same})" if same else "")

    def part(field: Callable[[Breakdown], int]) -> str:
        return _percent(sum(map(field, rows)), span)

    unknown = f"ran kernels that may compute or communicate for {part(lambda b: b.unknown_ns)}, "
    unused = "had no recorded operation" if profile.missing else "idled"
    text = (
        f"Over {length} ({definition}), {subject} computed for {part(lambda b: b.compute_ns)} of the time, "
        f"{unknown if any(row.unknown_ns for row in rows) else ''}"
        f"communicated without computing for {part(lambda b: b.exposed_communication_ns)}, copied without either for "
        f"{part(lambda b: b.exposed_memory_ns)} and {unused} for {part(lambda b: b.idle_ns)}."
    )
    if len(rows) > 1:
        shares = [row.busy_ns / row.span_ns if row.span_ns else 0.0 for row in rows]
        least, most = _percent(min(shares), 1), _percent(max(shares), 1)
        each = least if least == most else f"between {least} and {most}"
        text = f"{text[:-1]}; each was busy for {each}."
    text = " ".join([*profile.faults, text])
    fields = (
        "compute_ns",
        *(["unknown_ns"] if any(row.unknown_ns for row in rows) else []),
        "exposed_communication_ns",
        "exposed_memory_ns",
    )
    where = [f"breakdown[{at}].{field}" for at in range(len(rows)) for field in fields]
    return [Statement(text=text, rows=where[:12]), *_idle(timeline, span), *_kernels(timeline), *_replays(timeline)]


def _idle(timeline: Timeline, span: int) -> list[Statement]:
    """The largest cause, and the host's activity if the host was the cause."""
    rows, idle = timeline.breakdown, sum(row.idle_ns for row in timeline.breakdown)
    if not span or idle / span < 0.01:
        return []
    spent = {field: sum(getattr(row, field) for row in rows) for field, _ in _CAUSES}
    field, words = max(_CAUSES, key=lambda cause: spent[cause[0]])
    text = f"For {_percent(spent[field], idle)} of the idle time, {words}."
    where = [f"breakdown[{at}].{field}" for at in range(len(rows))]
    if field == "idle_host_ns" and timeline.host_in_gaps:
        most, known = timeline.host_in_gaps[0], sum(row.ns for row in timeline.host_in_gaps)
        text = f"{text[:-1]}; the host was then mostly in {most.activity} ({_percent(most.ns, known)})."
        where.append("host_in_gaps[0].ns")
    return [Statement(text=text, rows=where[:8])]


def _kernels(timeline: Timeline) -> list[Statement]:
    shown = timeline.kernels[:_SHOWN]
    if not shown:
        return []
    listed = "; ".join(f"{shorten(k.name, 60)} ({_percent(k.share, 1)}, count {k.count:,})" for k in shown)
    whole = sum(row.total_ns for row in timeline.kernels)
    text = f"Of {duration(whole)} of kernel time, {_percent(sum(k.share for k in shown), 1)} is in: {listed}."
    return [Statement(text=text, rows=[f"kernels[{at}].total_ns" for at in range(len(shown))])]


def _replays(timeline: Timeline) -> list[Statement]:
    """What CUDA graphs replayed, and which range captured most of it."""
    whole = sum(row.self_gpu_ns for row in timeline.replays)
    count = sum(row.total_ns for row in (*timeline.kernels, *timeline.memory))
    if not whole or whole / count < _SMALL:
        return []
    text = f"CUDA graphs replayed {_percent(whole, count)} of the device work"
    unsaid = sum(row.self_gpu_ns for row in timeline.replays if row.name == NOT_SAID)
    if unsaid == whole:
        text += ", and the recording does not say which operator or range captured it."
        return [Statement(text=text, rows=["replays[0].gpu_ns"])]
    most = max(range(len(timeline.replays)), key=lambda at: timeline.replays[at].self_gpu_ns)
    row = timeline.replays[most]
    text += f"; most of that, {_percent(row.self_gpu_ns, whole)}, was captured in {shorten(row.name, 60)}."
    if row.name.startswith("["):
        text = f"{text.rpartition(';')[0]}, {_percent(row.self_gpu_ns, whole)} of that {row.name.strip('[]')}."
    return [Statement(text=text, rows=[f"replays[{most}].self_gpu_ns"])]


def _host(profile: Profile) -> list[Statement]:
    """For a trace without device activity: its steps and operators."""
    timeline, (length, _) = _timeline(profile), _window(profile)
    rows: list[OpStat] = list(timeline.operators or timeline.frames or timeline.api)
    ranked = sorted(enumerate(rows), key=lambda item: -item[1].total_ns)
    shown = [(at, row) for at, row in ranked if not row.name.startswith(_WRAPPER)][:_SHOWN]
    what = "operators" if timeline.operators else "frames" if timeline.frames else "calls"
    table = "api" if what == "calls" else what
    text = f"The file contains no device activity; over {length} of host time "
    if shown:
        listed = "; ".join(f"{shorten(r.name, 60)} ({duration(r.total_ns)}, count {r.count:,})" for _, r in shown)
        text += f"the largest {what}, with what they call, are {listed}."
    else:
        text += f"it names {len(timeline.ranges)} kinds of ranges."
    text = " ".join([*profile.faults, text])
    statements = [*_loader(profile), Statement(text=text, rows=[f"{table}[{at}].total_ns" for at, _ in shown])]
    if timeline.steps:
        times = [step.duration_ns for step in timeline.steps]
        middle, longest = duration(median(times)), duration(max(times))
        text = f"Of the steps ({len(times)}), the median took {middle}, the longest {longest}."
        statements.append(Statement(text=text, rows=["steps[].duration_ns"]))
    return statements


def _loader(profile: Profile) -> list[Statement]:
    """The share of the window in which the program waited for torch's data loader, if it is large."""
    timeline, (length, _) = _timeline(profile), _window(profile)
    loaders = {at: row for at, row in enumerate(timeline.ranges) if row.name.startswith(_LOADER)}
    waited, calls = sum(row.total_ns for row in loaders.values()), sum(row.count for row in loaders.values())
    assert profile.window is not None
    if not waited or waited < _LARGE * profile.window.duration_ns:
        return []
    text = (
        f"For {_percent(waited, profile.window.duration_ns)} of {length}, the program waited for its data loader "
        f"({duration(waited)} in {calls:,} calls): make loading faster, or load in worker processes. "
        "`aisp profile dataloader --factory FILE.py:NAME` measures how many workers help."
    )
    return [Statement(text=text, rows=[f"ranges[{at}].total_ns" for at in loaders])]


def _launches(kernels: list[NcuKernel]) -> list[Statement]:
    timed = sorted((k for k in kernels if k.duration_ns), key=lambda k: -(k.duration_ns or 0))
    names = len({k.name for k in kernels})
    text = f"The report contains {len(kernels):,} rows of launches of {names:,} different kernels"
    if not timed:
        return [Statement(text=f"{text}, without their durations.", rows=["kernels[]"])]
    whole, first = sum(k.duration_ns or 0 for k in timed), timed[0]
    most = first.duration_ns or 0
    text += (
        f", {duration(whole)} in all; the longest is launch {first.id}, {shorten(first.name, 60)}, with "
        f"{duration(most)} ({_percent(most, whole)})."
    )
    return [Statement(text=text, rows=[f"kernels[id={first.id}].duration_ns"])]


def _memory(at: int, row: MemoryProfile) -> Statement:
    mib = 2**20
    now = f"{row.end_bytes / mib:,.1f} MiB were allocated and {row.reserved_bytes / mib:,.1f} MiB reserved"
    if not row.events:
        text = f"Device {row.device}: {now} when the snapshot was taken; without a history, it has no peak."
        return Statement(text=text, rows=[f"memory[{at}].{key}" for key in ("end_bytes", "reserved_bytes")])
    lost = " (earlier ones were lost: its buffer was full, so the peaks may have been higher)" if row.overflowed else ""
    text = (
        f"Device {row.device}: in a history of {row.events:,} events{lost}, at most {row.peak_bytes / mib:,.1f} MiB "
        f"were allocated and at most {row.peak_reserved_bytes / mib:,.1f} MiB reserved; at its end, {now}."
    )
    keys = ("peak_bytes", "peak_reserved_bytes", "end_bytes", "reserved_bytes")
    return Statement(text=text, rows=[f"memory[{at}].{key}" for key in keys])


def _advice(profile: Profile, insights: list[Insight]) -> list[Statement]:
    """The largest ceiling, as time if the profile has a window, and the call that shows more."""
    if not insights:
        return []
    first = insights[0]
    gain = _percent(first.gain_ceiling, 1)
    if profile.window is not None:
        length = profile.window.duration_ns
        gain += f", {duration(first.gain_ceiling * length)} of {duration(length)}"
    text = f"To try first ({first.title}): {first.fix} It can save at most {gain} ({first.basis})."
    if first.next.why:
        text += f" `{_command(first.next)}` {first.next.why}."
    return [Statement(text=text, rows=["insights[0].gain_ceiling"])]


def _command(step: NextStep) -> str:
    """The step as a shell command without folders of files; SCRIPT stands for the program to record."""
    try:
        words = ["aisp", *registry.get(step.tool).cli.split()]
    except UnknownTool:  # this module is also used without the tools
        words = [step.tool]
    files = [value for name, value in step.args.items() if name in _FILES]
    for value in files or (["SCRIPT"] if step.tool in _RECORDS else []):
        paths = value if isinstance(value, list) else [value]
        words += [str(path).rpartition("/")[2] for path in paths]
    for name, value in step.args.items():
        words += [] if name in _FILES else [f"--{name}", str(value).rpartition("/")[2]]
    return shlex.join(words)
