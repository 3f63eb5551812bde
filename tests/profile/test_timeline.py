"""Breakdowns are exact: against a brute force that looks at every nanosecond edge, and against known answers."""

import dataclasses
import gzip
import json
import sqlite3
import time
import tracemalloc

import oracle_tools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate import MS, US, Sim, compute, step
from sweep import brute

from aisp_mcp.profile import digest, load
from aisp_mcp.profile.pictures import flame
from aisp_mcp.profile.readers import kineto, nsys
from aisp_mcp.profile.timeline import intervals, summarize
from aisp_mcp.profile.timeline.columns import Ops

KINETO = oracle_tools.DATA / "train_step_h200.kineto.json.gz"
NSYS = oracle_tools.DATA / "train_step_h200.nsys.sqlite.gz"

PARTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def _points(parts):
    return {at for low, high in parts for at in range(low, high)}


@given(PARTS, PARTS)
@settings(max_examples=300)
def test_interval_arithmetic_is_set_arithmetic(a, b):
    one = intervals.union(a)
    first, second = (intervals.Cover.of([p[0] for p in sorted(c)], [p[1] for p in sorted(c)]) for c in (a, b))
    left = list(zip(*first.without(second), strict=True))
    assert _points(one) == _points(a) == _points(zip(*first, strict=True))
    assert _points(left) == _points(a) - _points(b)
    assert _points(zip(*intervals.Cover.merged([first, second]), strict=True)) == _points(a) | _points(b)
    assert first.inside(10, 40) == len(_points(a) & set(range(10, 40)))
    for result in (one, left):
        assert result == sorted(result)
        assert all(low < high for low, high in result)
        assert intervals.length(result) == len(_points(result))


TRACES = sorted([*oracle_tools.DATA.glob("*.kineto.json.gz"), *oracle_tools.DATA.glob("*.nsys.sqlite.gz")])


@pytest.mark.parametrize("path", TRACES, ids=[path.name.partition(".g")[0] for path in TRACES])
def test_breakdown_equals_a_sweep_over_all_edges(path):
    trace = load.load_trace(path)
    one_device = trace.gpu[0].device
    trace = dataclasses.replace(trace, gpu=Ops(op for op in trace.gpu if op.device == one_device))
    row = summarize.profile(trace).timeline.breakdown[0]
    expected = brute(trace)
    assert row.compute_ns == expected["compute"]
    assert (row.communication_ns, row.exposed_communication_ns) == (expected["comm"], expected["exposed_comm"])
    assert row.memory_ns == expected["memory"]
    assert row.exposed_memory_ns == expected["exposed_memory"]
    assert row.idle_ns == expected["idle"]
    assert row.compute_ns + row.exposed_communication_ns + row.exposed_memory_ns + row.idle_ns == row.span_ns


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 50), st.integers(0, 60), st.booleans()), min_size=1, max_size=40
    )
)
@settings(max_examples=60)
def test_any_schedule_adds_up(tmp_path_factory, rows):
    sim = Sim()
    for stream, length, pause, comm in rows:
        sim.host(pause * US)
        if comm:
            sim.collective(length * US, 1 << 20, stream=stream)
        else:
            sim.kernel(ns=length * US, stream=stream)
    trace = kineto.read(sim.kineto(tmp_path_factory.mktemp("any") / "t.json"))
    row = summarize.profile(trace).timeline.breakdown[0]
    expected = brute(trace)
    assert (row.compute_ns, row.communication_ns) == (expected["compute"], expected["comm"])
    assert (row.exposed_communication_ns, row.idle_ns) == (expected["exposed_comm"], expected["idle"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4389808340110.243", 4389808340110243), (12, 12000), ("1.5", 1500), ("0.0005", 0), ("1e3", 1_000_000),
     ("-2.5", -2500), ("0.1234567", 123), (True, None), ("x", None), ("nan", None), ("1e400", None), (None, None)],
)  # fmt: skip
def test_microseconds_become_exact_nanoseconds(text, expected):
    assert kineto.nanoseconds(text) == expected


def test_idle_has_the_cause_that_was_built_in(tmp_path):
    sim = Sim()
    sim.kernel(ns=100 * US)
    sim.drained()
    sim.host(500 * US)
    sim.kernel(ns=100 * US)
    sim.kernel(ns=100 * US)
    row = summarize.profile(kineto.read(sim.kineto(tmp_path / "t.json"))).timeline.breakdown[0]
    assert row.idle_host_ns == 500 * US + 5 * US  # and the launch itself
    assert row.idle_kernel_ns == 1 * US
    assert row.idle_other_ns == 0


def test_busbw_follows_nccl_tests(tmp_path):
    sim = Sim()
    sim.collective(1 * MS, 1 << 30, ranks=8)
    row = summarize.profile(kineto.read(sim.kineto(tmp_path / "t.json"))).timeline.collectives[0]
    assert (row.name, row.bytes, row.ranks) == ("all_reduce", 1 << 30, 8)
    assert row.busbw_bytes_per_s == pytest.approx((1 << 30) / 1e-3 * 2 * 7 / 8)


def test_collectives_of_two_ranks_have_sizes_and_rates():
    """Recorded on two H200 over NVLink: the group, the message as gathered or reduced, and a rate below the links'."""
    for rank in (0, 1):
        profile = load.load(oracle_tools.DATA / f"rank{rank}.kineto.json.gz")
        rows = {(c.name, c.bytes): c for c in profile.timeline.collectives}
        assert profile.rank == rank
        assert {name: rows[name, size].count for name, size in rows if size != 4} == {
            "all_gather": 20, "reduce_scatter": 20, "all_reduce": 5,
        }  # fmt: skip
        assert rows["all_gather", 4096 * 4096 * 2].dtype == "bfloat16"
        assert all(c.ranks == 2 and 0 < c.busbw_bytes_per_s < 450e9 for c in rows.values())
        assert 0.3 < profile.timeline.breakdown[0].overlap < 0.4


def test_iterations_are_measured_by_the_work_they_launched(tmp_path):
    """The host is far ahead: its own ranges would be 20 times too short."""
    sim = Sim()
    for number in range(5):
        step(sim, number, lambda: compute(sim, 10, 200 * US))
    steps = load.load(sim.kineto(tmp_path / "t.json"), "steady").timeline.steps
    assert [s.duration_ns for s in steps[1:]] == [10 * 201 * US] * 4


def test_slow_first_iterations_are_left_out():
    profile = load.load(NSYS, "steady")
    assert "1 slow first ones left out" in profile.window.definition
    assert len(profile.timeline.steps) == 6


def test_rocm_and_cpu_only_traces(tmp_path):
    rocm = {
        "ph": "X",
        "cat": "kernel",
        "name": "Cijk_Ailk_Bljk",
        "pid": 0,
        "tid": 0,
        "ts": 5,
        "dur": 2,
        "args": {"device": 0, "stream": 0},
    }
    path = tmp_path / "rocm.json"
    path.write_text(json.dumps({"traceEvents": [rocm]}))
    assert load.load(path).timeline.kernels[0].grid is None
    path.write_text(json.dumps({"traceEvents": [{**rocm, "cat": "cpu_op", "name": "aten::mm"}]}))
    profile = load.load(path)
    assert profile.timeline.operators[0].total_ns == 2000
    assert "CPU only" in profile.diagnostics[0]


def test_three_megabytes_of_sqlite_in_half_a_second(tmp_path):
    """The capture, its events seven times over: 10,000 kernels and 42,000 calls, summed up for both windows."""
    path = oracle_tools.unpack(NSYS.name, tmp_path)
    with sqlite3.connect(path) as db:
        for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"):
            name = f"CUPTI_ACTIVITY_KIND_{table}"
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
            shifted = [f'"{c}" + ?' if c in ("start", "end", "correlationId") else f'"{c}"' for c in columns]
            once = db.execute(f"SELECT max(rowid) FROM {name}").fetchone()[0]
            for turn in range(1, 7):
                query = f"INSERT INTO {name} SELECT {', '.join(shifted)} FROM {name} WHERE rowid <= {once}"
                db.execute(query, [turn * 10**10] * 3)
    db.close()
    assert path.stat().st_size > 3_000_000
    best = min(_seconds(lambda: _summary(path)) for _ in range(3))
    reference = min(_seconds(_reference) for _ in range(3))
    assert best < 80 * reference  # measured 40: a third of a second where the reference takes 8 ms


def _summary(path):
    trace = nsys.read(path)
    shown, steady = (summarize.profile(trace, scope) for scope in ("all", "steady"))
    assert len(digest.summary(shown, "overview", 10, steady).model_dump_json()) < 8000


def _reference():
    """A fixed piece of the same kind of work, so that the bound holds on any machine."""
    return sorted((i * 7919 % 100_003, str(i)) for i in range(20_000))


def _seconds(work):
    """Of this process's own processor time: other programs on the machine do not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory):
    """200,000 events: 100 iterations of 1,000 kernels, each with its launch."""
    sim = Sim()
    for number in range(100):
        step(sim, number, lambda: compute(sim, 1000, 10 * US))
    return sim.kineto(tmp_path_factory.mktemp("long") / "t.json")


@pytest.mark.slow
def test_two_hundred_thousand_events_in_bounded_memory(long_trace):
    tracemalloc.start()
    trace = kineto.read(long_trace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace.gpu) + len(trace.api) == 200_000
    assert peak < 1 << 30
    assert summarize.profile(trace).timeline.kernels[0].count == 100_000


@pytest.mark.slow
def test_two_hundred_thousand_events_take_little_more_than_their_json(long_trace):
    """Three seconds where json.loads alone takes one: measured: 2.3 times, tables and unions included."""
    plain = min(_seconds(lambda: json.loads(long_trace.read_bytes())) for _ in range(2))
    whole = min(_seconds(lambda: summarize.profile(kineto.read(long_trace))) for _ in range(2))
    assert whole < 3.5 * plain


def test_the_capture_compressed_and_not_are_the_same(tmp_path):
    plain = tmp_path / "t.json"
    plain.write_bytes(gzip.decompress(KINETO.read_bytes()))
    assert load.load(plain).timeline == load.load(KINETO).timeline


def test_the_views_of_a_trace_read_its_file_once_and_a_changed_file_again(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "args": {"device": 0, "stream": 7}}
    reads = []
    read = kineto.read
    monkeypatch.setattr(kineto, "read", lambda file: reads.append(file.path) or read(file))
    for dur in (100, 300):
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{**event, "dur": dur}]}))
        for scope in ("all", "steady", "all"):
            assert load.load(path, scope).timeline.kernels[0].total_ns == dur * 1000
        assert len(load.load_trace(path).gpu) == 1
        assert flame.stacks(path)[0] == {("GPU 0", "stream 7", "k"): dur * 1000}
    assert reads == [path, path]
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    assert load.load(copy).source.path == str(copy)
