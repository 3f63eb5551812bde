"""Timelines as columns: the answers that records gave, and processor time that grows as the rows do."""

import hashlib
import json
import time

import big
import oracle_tools
import pytest

from aisp_mcp.profile import load
from aisp_mcp.profile.timeline import summarize
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import GpuOp, HostCall

# Digests of window and timeline of every capture, from the reader that kept a record per event.
ANSWERS = json.loads((oracle_tools.DATA / "answers.json").read_text())


@pytest.mark.parametrize("capture", sorted({name.partition(" ")[0] for name in ANSWERS}))
def test_answers_are_those_of_records(capture):
    trace = load.load_trace(oracle_tools.DATA / capture)
    for scope in ("steady", "all"):  # one trace for both: the second does not feel the first
        profile = summarize.profile(trace, scope)
        text = json.dumps([profile.window.model_dump(), profile.timeline.model_dump()], sort_keys=True)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == ANSWERS[f"{capture} {scope}"]


def test_four_times_the_rows_take_nowhere_near_sixteen_times_as_long(tmp_path):
    """A cost that grows with the square would; fresh pages on a loaded machine made it 6.7 times once, 4.3 is usual."""
    small, large = tmp_path / "small.sqlite", tmp_path / "large.sqlite"
    ratio = [big.nsys(path, size) for path, size in ((small, 2_500_000), (large, 10_000_000))]
    assert ratio[1] == 4 * ratio[0]
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
