"""A damaged recording is named in the first sentence, and what the damage hides is unknown, never idle."""

from __future__ import annotations

import json
import pickle

import pytest
from simulate import nsys_db

from aisp_mcp.errors import UsageError
from aisp_mcp.profile import load
from aisp_mcp.profile.overview.tools import ReadParams, aisp_profile_read
from aisp_mcp.profile.readers import json_stream


def _launched(number, at, length, launch=None, stream=9, name="mm"):
    """A launch and its kernel, in microseconds."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 8, "tid": 8, "dur": 3}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at, "dur": length}
    called = at - 20 if launch is None else launch
    return [
        {**call, "ts": called, "args": {"correlation": number}},
        {**kernel, "args": {"device": 0, "stream": stream, "correlation": number}},
    ]


def _pairs(count=40, begin=5000, pitch=200, length=150):
    return [_launched(n + 1, begin + pitch * n, length) for n in range(count)]


def _written(tmp_path, pairs):
    events = [event for pair in pairs for event in pair if event]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return tmp_path / "t.json"


def _opening(path):
    return [row.text for row in aisp_profile_read(ReadParams(profile=str(path)), None).opening]


def _whole():
    return _pairs()


def _no_time():
    pairs = _pairs(begin=7_000_000_000)
    for pair in pairs[3:9]:
        pair[1] |= {"ts": 0, "dur": 0}
    return pairs


def _time_0_near():
    """The window grows by less than the factor of an outlier, but the launches are later than their operations."""
    pairs = _pairs()
    for pair in pairs[3:9]:
        pair[1] |= {"ts": 0}
    return pairs


def _far():
    pairs = _pairs()
    pairs[20][1]["ts"] = 90_000_000_000
    pairs[21][1]["ts"] = 90_000_000_100
    return pairs


def _negative():
    pairs = _pairs()
    for pair in pairs[5:8]:
        pair[1]["dur"] = -4
    return pairs


def _too_long():
    pairs = _pairs()
    for at in (4, 5, 30):
        pairs[at][1]["dur"] = 4_294_967
    return pairs


def _too_long_at_the_end():
    pairs = _pairs()
    pairs[-1][1]["dur"] = 9_000_000_000
    return pairs


def _last_two_too_long():
    pairs = _pairs()
    for call, kernel in pairs[-2:]:
        kernel["dur"] = 3_400_000 + call["ts"]
    return pairs


def _dropped():
    return [[call, None if at % 4 == 1 else kernel] for at, (call, kernel) in enumerate(_pairs())]


def _dropped_first():
    return [[call, None if at < 12 else kernel] for at, (call, kernel) in enumerate(_pairs())]


def _clocks():
    return [_launched(n + 1, 5000 + 200 * n, 150, launch=5300 + 200 * n) for n in range(40)]


@pytest.mark.parametrize(
    ("damaged", "said", "window_us", "busy_us", "unknown_us"),
    [
        (_whole, "Over 7.95 ms", 7950, 6000, 0),
        (_no_time, "6 of 40 device operations have no time (they start at 0): left out.", 7950, 5100, 1250),
        (_time_0_near, "6 of 40 device operations have no time", 7950, 5100, 1250),
        (_far, "2 of 40 device operations are so far from all others", 7950, 5700, 450),
        (_negative, "3 events have no usable time (none, or a negative duration): left out.", 7950, 5550, 650),
        (_too_long, "3 of 40 durations run past the start of the next operation", 7950, 6150, 0),
        (_too_long_at_the_end, "1 of 40 durations runs past", 7800, 5850, 0),
        (_last_two_too_long, "2 of 40 durations run past", 7800, 5900, 0),
        (_dropped, "10 of 40 launches have no kernel in this trace: busy time is a lower bound.", 7950, 4500, 2500),
        (_dropped_first, "12 of 40 launches have no kernel", 5550, 4200, 0),
        (_clocks, "40 of 40 device operations start before their own launch, by up to 300 µs", 7950, 6000, 1950),
    ],
)  # fmt: skip
def test_damage_is_named_first_and_hides_causes_only_where_it_is(
    damaged, said, window_us, busy_us, unknown_us, tmp_path
):
    path = _written(tmp_path, damaged())
    assert said in _opening(path)[0]
    profile = load.load(path)
    row = profile.timeline.breakdown[0]
    assert (row.span_ns, row.busy_ns, row.idle_unknown_ns) == (1000 * window_us, 1000 * busy_us, 1000 * unknown_us)
    if unknown_us:
        assert "the host had not launched" not in " ".join(_opening(path)[1:2]) or unknown_us < row.idle_ns / 2000


def test_a_dropped_record_is_not_idle_time(tmp_path):
    first, then, *_ = _opening(_written(tmp_path, _dropped()))
    assert "idled" not in first
    assert "had no recorded operation for 43 %" in first
    assert "the cause is unknown" in then


def _captured():
    """Launches into a graph under capture run nothing."""
    pairs = _pairs()
    for at in range(10, 20):
        pairs[at][1] = None
    marks = [(pairs[10][0]["ts"] - 9, "cudaStreamBeginCapture"), (pairs[19][0]["ts"] + 9, "cudaStreamEndCapture_v1")]
    return [*pairs, *([{**pairs[0][0], "ts": at, "name": name, "args": {}}] for at, name in marks)]


def _nested():
    """The runtime's launch calls the driver's, which has the kernel's correlation id."""
    pairs = _pairs()
    outer = [
        {**call, "ts": call["ts"] - 1, "dur": 6, "args": {"correlation": 900 + n}} for n, (call, _) in enumerate(pairs)
    ]
    inner = [[{**call, "cat": "cuda_driver", "name": "cuLaunchKernel"}, kernel] for call, kernel in pairs]
    return [*([call] for call in outer), *inner]


def _dependent_launches():
    return [_launched(n + 1, 5000 + 200 * n, 230) for n in range(40)]


def _side_by_side():
    """Nodes of one graph share a launch and run at the same time."""
    events = []
    for n in range(20):
        call, kernel = _launched(n + 1, 5000 + 400 * n, 300)
        events += [[{**call, "name": "cudaGraphLaunch"}, kernel], [{**kernel, "ts": kernel["ts"] + 50, "dur": 20}]]
    return events


def _not_in_order():
    """A queue on which kernels overlap all the time is not a stream."""
    return [_launched(n + 1, 5000 + 100 * n, 450 if n % 3 == 0 else 20) for n in range(40)]


def _long_pause():
    """The launches show that the pause is real."""
    return [*_pairs(2), *[_launched(n + 50, 80_000_000 + 200 * n, 150) for n in range(40)]]


def _long_last():
    pairs = [*_pairs(), _launched(99, 13_000, 9_000_000)]
    return [*pairs, [{**pairs[0][0], "name": "cudaDeviceSynchronize", "ts": 13_010, "dur": 9_000_000, "args": {}}]]


@pytest.mark.parametrize(
    "sound", [_captured, _nested, _dependent_launches, _side_by_side, _not_in_order, _long_pause, _long_last]
)
def test_unusual_but_sound_recordings_have_no_fault(sound, tmp_path):
    path = _written(tmp_path, sound())
    assert load.load(path).faults == []
    assert _opening(path)[0].startswith("Over ")


def test_host_events_at_time_0_do_not_stretch_a_trace_without_a_device(tmp_path):
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 6e12 + 50 * n, "dur": 40}
        for n in range(9)
    ]
    path = _written(tmp_path, [[*rows, {**rows[0], "ts": 0}]])
    assert _opening(path)[0].startswith("1 of 10 operators have no time")
    assert load.load(path).window.duration_ns == 440_000


def test_graphs_recorded_as_a_whole_are_said(tmp_path):
    columns = 'start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, graphId INTEGER'
    rows = [(100 * n, 100 * n + 50, 0, 7, n + 1, 3) for n in range(4)]
    path = nsys_db(tmp_path / "g.sqlite", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=(columns, rows))
    assert any("--cuda-graph-trace=node" in note for note in load.load(path).diagnostics)


_TOLD = "gpuId INTEGER, cudaId INTEGER, pid INTEGER"


def _ranks(path, told, gpus=2):
    """Two processes that both call their GPU device 0, half of the time each, one after the other."""
    rows = [(1000 * n, 1000 * n + 1000, 0, 7, n, (31 if n < 30 else 32) << 24) for n in range(60)]
    columns = (
        'start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER'
    )
    nsys_db(
        path,
        CUPTI_ACTIVITY_KIND_MEMSET=(columns, rows),
        TARGET_INFO_GPU=("id INTEGER, name TEXT", [(n, "A100") for n in range(gpus)]),
        TARGET_INFO_CUDA_DEVICE=told,
    )
    return path


@pytest.mark.parametrize(
    ("told", "first", "devices"),
    [
        ((_TOLD, [(0, 0, 31), (1, 0, 32)]), "Over 60 µs", [0, 1]),
        ((_TOLD, [(1, 0, 31), (1, 0, 32)]), "Over 60 µs", [0]),
        ((_TOLD, [(0, 0, 31), (1, 0, 99)]), "The export does not say which GPU is", [0, 2]),
        ((_TOLD, [(0, 0, 31)]), "Several processes use device 0; the export does not say", [0]),
        (("gpuId INTEGER, cudaId INTEGER", [(0, 0)]), "Several processes use device 0; the export does not say", [0]),
    ],
    ids=["two GPUs", "one GPU", "an unknown process", "a process is missing", "no processes"],
)  # fmt: skip
def test_ordinals_of_processes_are_joined_to_gpus(told, first, devices, tmp_path):
    path = _ranks(tmp_path / "r.sqlite", told)
    assert [row.device for row in load.load(path).timeline.breakdown] == devices
    text = _opening(path)[0]
    assert text.startswith(first)
    assert ("2 devices" in text) == (len(devices) == 2)
    assert ("each was busy for 50 %" in text) == (len(devices) == 2)


@pytest.mark.parametrize(
    ("pids", "said", "devices", "unknown"),
    [
        ([("[TP00] 71", "[TP00] 0"), ("[TP01] 72", "[TP01] 0")], "Over ", 2, False),
        ([(71, 0), (72, 5000)], "The trace merges processes", 2, True),
        ([(71, 0), (72, 0)], "CUDA calls of 2 processes are in this trace", 1, True),
    ],
    ids=["prefixes", "numbers", "not told apart"],
)
def test_ranks_merged_by_a_script_are_devices_of_their_own(pids, said, devices, unknown, tmp_path):
    pairs = []
    for shift, (host, gpu) in enumerate(pids):
        pairs += [
            [{**call, "pid": host}, {**kernel, "pid": gpu}]
            for call, kernel in _pairs(begin=5000 + 100 * shift, length=90)
        ]
    path = _written(tmp_path, pairs)
    assert _opening(path)[0].startswith(said)
    rows = load.load(path).timeline.breakdown
    assert [row.busy_ns for row in rows] == ([3_600_000] * 2 if devices == 2 else [7_200_000])
    assert all((row.idle_unknown_ns > 0) == unknown for row in rows)


def _snapshot(path, history):
    mib = 2**20
    sizes = {"segment_alloc": 64, "alloc": 48, "segment_free": 64, "free_completed": 48}
    rows = [
        {"action": what, "addr": at << 30, "size": sizes[what] * mib, "time_us": n}
        for n, (what, at) in enumerate(history)
    ]
    segment = {
        "device": 0,
        "address": 1 << 30,
        "total_size": 64 * mib,
        "allocated_size": 48 * mib,
        "active_size": 48 * mib,
        "blocks": [],
    }
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [rows]}))
    return path


def test_peaks_of_memory_are_of_one_moment_each(tmp_path):
    """Three segments, of which the one without an allocation is taken after the peak; two go back."""
    grown = [("segment_alloc", 1), ("alloc", 1), ("segment_alloc", 2), ("alloc", 2)]
    history = [*grown, ("free_completed", 2), ("segment_alloc", 3), ("segment_free", 3), ("segment_free", 2)]
    path = _snapshot(tmp_path / "m.pickle", history)
    assert _opening(path)[0] == (
        "Device 0: in a history of 8 events, at most 96.0 MiB were allocated and at most 192.0 MiB reserved; at its "
        "end, 48.0 MiB were allocated and 64.0 MiB reserved."
    )
    assert load.load(path).memory[0].unused_at_peak == 0  # what went back is not fragmentation


def test_memory_held_before_the_history_is_part_of_its_peak(tmp_path):
    path = _snapshot(tmp_path / "m.pickle", [("free_completed", 9)])
    assert "at most 96.0 MiB were allocated" in _opening(path)[0]
    snapshot = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(snapshot | {"trace_alloc_overflowed": [True], "trace_alloc_max_entries": [1]}))
    assert (
        "events (earlier ones were lost: its buffer was full, so the peaks may have been higher)" in _opening(path)[0]
    )


def test_without_a_history_memory_has_no_peak(tmp_path):
    path = _snapshot(tmp_path / "m.pickle", [])
    assert _opening(path) == [
        "Device 0: 48.0 MiB were allocated and 64.0 MiB reserved when the snapshot was taken; without a history, it "
        "has no peak."
    ]


@pytest.mark.parametrize(
    ("events", "unit"),
    [
        (["page-faults:u", "cpu-clock:uhH", "page-faults:u"], "1 sample of cpu-clock"),
        (["branch-misses", "instructions:P", "branch-misses"], "2 samples of branch-misses"),
        (["cycles:u"] * 3, "3 samples in"),
    ],
)
def test_samples_of_different_events_are_never_added_up(events, unit, tmp_path):
    rows = [f"app 7 [000] 5.{n}: 40000 {event}: \n\t55d0 work_of_{event[:3]} (/x)\n" for n, event in enumerate(events)]
    (tmp_path / "p.perf").write_text("\n".join(rows))
    text = _opening(tmp_path / "p.perf")[0]
    assert f"contains {unit}" in text
    assert "100 %" in text
    assert ("of other events are left out" in text) == (len(set(events)) > 1)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["hipGraphLaunch"] * 7,
            "The host launched 7 times, 7 of them of graphs, and no device activity was recorded.",
        ),
        (["cudaGraphLaunch", "cudaLaunchKernel"] * 2, "The host launched 4 times, 2 of them of graphs, and no device"),
    ],
)
def test_launches_without_any_device_activity_are_a_torch_trace(names, said, tmp_path):
    calls = [[{**_launched(n + 1, 500 * n + 20, 9)[0], "name": name}] for n, name in enumerate(names)]
    assert _opening(_written(tmp_path, calls))[0].startswith(said)


def _raw(name):
    return f'{{"ph":"X","cat":"python_function","name":"{name}","pid":1,"tid":1,"ts":5,"dur":1,"args":{{}}}}'


@pytest.mark.parametrize(
    "name", ['{"device": "cpu"}(12): run', r"torch\cuda\__init__.py(9): f", 'L("t", "I")\n(1): <module>']
)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_name_that_is_not_json_costs_one_event(name, place, tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "_PIECE", 2048)
    path = _written(tmp_path, _whole())
    whole = load.load(path).timeline
    text, bad = path.read_text(), _raw(name)
    at = {"first": text.index("[{") + 1, "middle": text.index('{"ph"', len(text) // 2), "last": text.rindex("}]") + 1}[
        place
    ]
    path.write_text(text[:at] + (f", {bad}" if place == "last" else f"{bad}, ") + text[at:])
    assert _opening(path)[0].startswith("1 event is not JSON (such as a name with quotes or backslashes as they are):")
    damaged = load.load(path).timeline
    assert (damaged.kernels, damaged.breakdown) == (whole.kernels, whole.breakdown)


def test_a_file_of_broken_events_or_a_cut_one_is_refused(tmp_path):
    path = _written(tmp_path, _whole())
    text = path.read_text()
    for broken in (text.replace('"name": "', '"name": ""'), text[: len(text) // 2]):
        path.write_text(broken)
        with pytest.raises(UsageError, match="is not complete JSON"):
            load.load(path)


def test_control_characters_in_names_are_read(tmp_path):
    path = _written(tmp_path, [_launched(n + 1, 1000 + 200 * n, 100, name=f"mm#{n % 2}") for n in range(30)])
    path.write_text(path.read_text().replace("mm#0", "mm\t0").replace("mm#1", "mm\x011\n"))
    rows = load.load(path).timeline.kernels
    assert [row.count for row in rows] == [15, 15]
    assert all(row.name.isprintable() for row in rows)
