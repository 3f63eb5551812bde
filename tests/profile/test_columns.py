"""Timelines as columns: the answers that records gave, and processor time that grows as the rows do."""

import hashlib
import json
import random
import time
from dataclasses import replace

import big
import oracle_tools
import pytest

from aisp_mcp.profile import load
from aisp_mcp.profile.timeline import summarize
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import GpuOp, HostCall, HostRange
from aisp_mcp.profile.timeline.intervals import Cover
from aisp_mcp.profile.timeline.trace import Trace

# Digests of window and timeline of every capture, from the reader that kept a record per event.
ANSWERS = json.loads((oracle_tools.DATA / "answers.json").read_text())


@pytest.mark.parametrize("capture", sorted({name.partition(" ")[0] for name in ANSWERS}))
def test_answers_are_those_of_records(capture):
    trace = load.load_trace(oracle_tools.DATA / capture)
    for scope in ("steady", "all"):  # one trace for both: the second does not feel the first
        profile = summarize.profile(trace, scope)
        timeline = profile.timeline.model_dump(exclude={"replays"})  # which records did not have
        text = json.dumps([profile.window.model_dump(), timeline], sort_keys=True)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == ANSWERS[f"{capture} {scope}"]


@pytest.mark.parametrize("few", [False, True])
def test_a_cover_without_another_has_the_points_that_only_it_has(few):
    draw = random.Random(5)
    for _ in range(300):
        mine, theirs = (
            Cover.of(ends[::2], ends[1::2])
            for count in (draw.randint(20, 60), 1 if few else 20)
            for ends in [sorted(draw.sample(range(400), 2 * count))]
        )
        left = mine.without(theirs)
        assert _points(left) == _points(mine) - _points(theirs)
        assert all(end < begin for end, begin in zip(left.end, left.begin[1:], strict=False))


def _points(cover):
    return {at for begin, end in zip(cover.begin, cover.end, strict=True) for at in range(begin, end)}


def test_a_large_trace_of_iterations_alone_is_summarised_once(monkeypatch):
    starts = range(0, 100_000, 1000)
    ranges = [HostRange(start, start + 990, 1, f"step {at}") for at, start in enumerate(starts)]
    calls = [HostCall(start, start + 5, 1, "cudaLaunchKernel", (0, start + 1)) for start in starts]
    gpu = [GpuOp(start + 10, start + 900, 0, 7, "kernel", "mm", (0, start + 1), 0, None, None) for start in starts]
    source = load.load_trace(oracle_tools.DATA / "rank0.kineto.json.gz").source
    trace = Trace(source, gpu=Ops(gpu), api=Calls(calls), ranges=ranges)
    whole = summarize.profile(trace, "all")
    assert summarize.judged(trace, whole).window.definition.startswith("100 iterations")
    monkeypatch.setattr(summarize, "_LARGE", 100)
    assert summarize.judged(trace, whole) is whole
    late = replace(trace, ranges=ranges[5:])
    assert summarize.judged(late, summarize.profile(late, "all")).window.definition.startswith("95 iterations")


def test_four_times_the_rows_take_nowhere_near_sixteen_times_as_long(tmp_path):
    """A cost that grows with the square would; fresh pages on a loaded machine made it 6.7 times once, 4.3 is usual."""
    small, large = tmp_path / "small.sqlite", tmp_path / "large.sqlite"
    ratio = [big.nsys(path, size) for path, size in ((small, 1_250_000), (large, 5_000_000))]
    assert 3 * ratio[0] <= ratio[1] <= 5 * ratio[0]
    assert min(_seconds(large) for _ in range(2)) < 10 * min(_seconds(small) for _ in range(2))


def _seconds(path):
    begin = time.process_time()
    trace = load.load_trace(path)
    summarize.profile(trace, "steady")
    summarize.profile(trace, "all")
    return time.process_time() - begin


def test_events_that_start_together_are_ordered_as_records():
    ops = [
        GpuOp(5, 9, 0, 7, "kernel", "b", (1, 3)),
        GpuOp(5, 7, 0, 7, "kernel", "a", (1, 2)),
        GpuOp(9, 8, 0, 7, "kernel", "ends before it starts", (1, 4)),
        GpuOp(1, 2, 1, 7, "memcpy", "c", (2, 3), 8),
    ]
    columns = Ops(ops)
    assert list(columns) == ops
    assert list(columns.take(columns.order())) == sorted(op for op in ops if op.end >= op.start)


def test_operations_find_the_last_call_of_their_process_with_their_id():
    ops = Ops(GpuOp(10 * n, 10 * n + 5, 0, 7, "kernel", "k", link) for n, link in enumerate([(1, 5), (2, 5), (1, 0)]))
    calls = Calls(HostCall(n, n + 1, 1, "launch", link) for n, link in enumerate([(1, 5), (1, 5), (2, 5), (3, 5)]))
    ops.join(calls)
    rows = [ops.launches.call[row] if row >= 0 else None for row in ops.launch]
    assert rows == [1, 2, None]
