"""Files as other tools write them: every layout is read with sums that can be checked, or refused with a way out."""

from __future__ import annotations

import json
import re

import pytest

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.profile import load
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.overview.tools import ReadParams, aisp_profile_read
from aisp_mcp.profile.pictures import flame
from aisp_mcp.profile.readers.stacks import UNNAMED
from aisp_mcp.profile.timeline.idle import blocking, call_kind
from aisp_mcp.profile.timeline.names import family, plain_gemm
from aisp_mcp.runs.diagnosis import bottlenecks

_OLD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream",'
_NEW = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'  # noqa: E501
_LONG = '"Section Name","Metric Name","Metric Unit","Metric Value"'


def _read(path, text):
    path.write_text(text)
    return aisp_profile_read(ReadParams(profile=str(path)), None)


@pytest.mark.parametrize(
    "text",
    [
        "==PROF== Connected\n" + _NEW + _LONG + '\n"0","1","p","h","mm","1","7","(32,1,1)","(4, 1, 1)","0","8.0",'
        '"Command line profiler metrics","gpu__time_duration.sum","usecond","2.50"\n',
        _OLD + _LONG + '\n"0","1","p","h","mm","2020-Jan","1","7","SOL","gpu__time_duration.sum","nsecond","2,500"\n',
        '"Process ID","Kernel Name","Invocations","Section Name","Metric Name","Metric Unit",'
        '"Minimum","Maximum","Average"\n'
        '"1","mm","3","SOL","Duration","usecond","1","4","2.5"\n',
        "ID,Kernel Name,Metric Name,Metric Unit,Metric Value\n0,mm,gpu__time_duration.sum,us,2.5\n",
    ],
    ids=["metrics", "without dimensions", "summary per kernel", "saved again"],
)
def test_ncu_in_every_layout_has_the_duration(text, tmp_path):
    answer = _read(tmp_path / "p.csv", text)
    assert "2.5 µs" in answer.opening[0].text
    assert "launch 0, mm" in answer.opening[0].text
    assert any("columns" in line for line in answer.diagnostics)


def test_launches_of_two_processes_with_one_id_stay_apart(tmp_path):
    rows = [f'"0","{pid}","p","h","mm","t","1","7","S","gpu__time_duration.sum","nsecond","5"' for pid in (1, 2)]
    (tmp_path / "p.csv").write_text("\n".join([_OLD + _LONG, *rows]) + "\n")
    assert len(load.load(tmp_path / "p.csv").kernels) == 2


def test_a_session_page_is_refused_as_what_it_is(tmp_path):
    (tmp_path / "s.csv").write_text('"ID","Kernel Name"\n')
    with pytest.raises(UsageError, match=r"no kernel|units|lists launches"):
        load.load(tmp_path / "s.csv")


_DISPATCH = "Kind,Agent_Id,Queue_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"
_CALL = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"


def test_rocprofv3_reads_the_calls_beside_the_dispatches(tmp_path):
    (tmp_path / "1_hip_api_trace.csv").write_text(
        _CALL + "\nHIP,hipLaunchKernel,1,1,7,0,50\nHIP,hipLaunchKernel,1,1,8,900,950\n"
    )
    (tmp_path / "1_kernel_trace.csv").write_text(
        _DISPATCH
        + "\nKERNEL_DISPATCH,Agent 1,1,3,Cijk_Ailk,7,100,300\nKERNEL_DISPATCH,Agent 1,1,3,Cijk_Ailk,8,1000,1200\n"
    )
    row = load.load(tmp_path / "1_kernel_trace.csv").timeline.breakdown[0]
    assert (row.span_ns, row.compute_ns, row.idle_host_ns) == (1100, 400, 700)


def test_tables_of_another_run_are_left_out_whatever_their_names(tmp_path):
    (tmp_path / "memory_copy_trace.csv").write_text(
        "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp\n"
        "MEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,0,1,9,9000000000000000,9000000000000500\n"
    )
    (tmp_path / "kernel_trace.csv").write_text(_DISPATCH + "\nKERNEL_DISPATCH,Agent 1,1,3,mm,7,100,300\n")
    answer = aisp_profile_read(ReadParams(profile=str(tmp_path / "kernel_trace.csv")), None)
    assert answer.opening[0].text.startswith("Over 200 ns")
    assert any("of another run" in note for note in answer.diagnostics)


def test_advice_names_its_ceiling_as_time_and_the_command(tmp_path):
    """Copies of 500 us, hidden by nothing, in a window of 1000 us; the memory on the host is not told to be pinned."""
    events = [
        _event("kernel", "mm", 0, 500, stream=7),
        _event("gpu_memcpy", "Memcpy HtoD", 500, 500, stream=7, bytes=1),
    ]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    text = aisp_profile_read(ReadParams(profile=str(tmp_path / "t.json")), None).opening[-1].text
    assert "To try first (Copies between host and device" in text
    assert "at most 50 %, 500 µs of 1 ms" in text
    assert re.search("`aisp[ _]profile[ _]hta t.json --section memory` shows sizes", text)


def test_rocprofv3_json_has_names_from_its_tables(tmp_path):
    tool = {
        "metadata": {"pid": 4},
        "agents": [{"id": {"handle": 9}, "type": 2, "cu_count": 304, "product_name": "Instinct MI300X"}],
        "kernel_symbols": [{"kernel_id": 3, "kernel_name": "k.kd", "formatted_kernel_name": "k"}],
        "strings": {"buffer_records": [{"kind": "HIP", "operations": ["hipMalloc", "hipLaunchKernel"]}]},
        "buffer_records": {
            "kernel_dispatch": [
                {
                    "correlation_id": {"internal": 1}, "start_timestamp": 100, "end_timestamp": 160,
                    "dispatch_info": {
                        "agent_id": {"handle": 9}, "queue_id": {"handle": 2}, "kernel_id": 3, "private_segment_size": 0,
                        "group_segment_size": 0, "workgroup_size": {"x": 64, "y": 1, "z": 1},
                        "grid_size": {"x": 640, "y": 1, "z": 1},
                    },
                }
            ],
            "hip_api": [{"kind": 0, "operation": 1, "thread_id": 4, "correlation_id": {"internal": 1},
                         "start_timestamp": 10, "end_timestamp": 20}],
        },
    }  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
    profile = load.load(tmp_path / "r.json")
    kernel = profile.timeline.kernels[0]
    assert (kernel.name, kernel.grid, kernel.total_ns, profile.timeline.api[0].name) == (
        "k",
        (10, 1, 1),
        60,
        "hipLaunchKernel",
    )


def _field(number, value):
    """One protobuf field: an integer, or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_xplane_sums_its_streams_and_not_the_lines_that_repeat_them(tmp_path):
    event = _field(1, 5) + _field(2, 3_000_000) + _field(3, 4_000_000)  # 3 us after the line's start, 4 us long
    lines = [
        _field(3, _field(2, name) + _field(3, 1000) + _field(4, event)) for name in (b"Stream #7(Compute)", b"XLA Ops")
    ]
    names = _field(4, _field(1, 5) + _field(2, _field(1, 5) + _field(2, b"fusion")))
    plane = _field(2, b"/device:GPU:0") + b"".join(lines) + names
    (tmp_path / "host.xplane.pb").write_bytes(_field(1, plane))
    kernel = load.load(tmp_path / "host.xplane.pb").timeline.kernels[0]
    assert (kernel.name, kernel.count, kernel.total_ns) == ("fusion", 1, 4000)
    (tmp_path / "cut.xplane.pb").write_bytes(_field(1, plane)[:-3])
    with pytest.raises(UsageError, match="complete xplane"):
        load.load(tmp_path / "cut.xplane.pb")


def test_a_folder_of_tensorboard_with_one_capture_is_that_capture(tmp_path):
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 14, "args": {"name": "Stream #14(Compute)"}},
        {"ph": "X", "pid": 1, "tid": 14, "ts": 5, "dur": 2.5, "name": "loop_fusion"},
        {"ph": "X", "pid": 1, "tid": 99, "ts": 5, "dur": 9, "name": "jit_step"},
    ]
    folder = tmp_path / "plugins" / "profile"
    folder.mkdir(parents=True)
    (folder / "a.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    answer = aisp_profile_read(ReadParams(profile=str(tmp_path)), None)
    assert "100 % is in: loop_fusion" in answer.opening[1].text
    assert "2.5 µs" in answer.opening[1].text


def test_stacks_of_perf_and_evented_speedscope_add_up(tmp_path):
    perf = "app  9/9 [001] 1.5: cycles:\n\t 6f b+0x1 (/x/app)\n\t 6e main (/x/app)\n\n"
    perf += "app 9 1.6: 1 cycles:\n\t 6e main (/x/app)\n"
    (tmp_path / "p.txt").write_text(perf)
    assert flame.stacks(tmp_path / "p.txt") == ({("app", "main", "b"): 1, ("app", "main"): 1}, "samples")
    events = [("O", 0, 0), ("O", 1, 2), ("C", 1, 5), ("C", 0, 6)]
    profile = {"type": "evented", "unit": "milliseconds", "startValue": 0, "endValue": 6,
               "events": [{"type": t, "frame": f, "at": at} for t, f, at in events]}  # fmt: skip
    top = {"$schema": "speedscope", "shared": {"frames": [{"name": "a"}, {"name": "b"}]}, "profiles": [profile]}
    (tmp_path / "s.json").write_text(json.dumps(top))
    assert flame.stacks(tmp_path / "s.json") == ({("a",): 3_000_000, ("a", "b"): 3_000_000}, "nanoseconds")


def _perf(*samples):
    return "".join(
        f"app 9 [000] 1.{n}: {head}: \n\t 6f {frame} (/x/app)\n\n" for n, (head, frame) in enumerate(samples)
    )


def _speedscope(*profiles):
    rows = [{"type": "sampled", "unit": unit, "samples": [[0], []], "weights": weights} for unit, weights in profiles]
    return json.dumps({"$schema": "speedscope", "shared": {"frames": [{"name": "a"}]}, "profiles": rows})


_UNCLOSED, _CLOSED, _CROSSED = "O 1 0, O 3 1", "O 1 0, C 3 0", "O 1 0, O 2 1, C 3 0, C 3 1"


def _evented(*profiles):
    """`O 1 0` opens frame 0 at 1 s. Every profile ends at 6 s."""
    rows = [
        [{"type": kind, "at": int(at), "frame": int(frame)} for kind, at, frame in map(str.split, profile.split(", "))]
        for profile in profiles
    ]
    shared = {"type": "evented", "unit": "seconds", "startValue": 0, "endValue": 6}
    frames = [{"name": "a"}, {"name": "b"}]
    profiles = [shared | {"events": events} for events in rows]
    return json.dumps({"$schema": "speedscope", "shared": {"frames": frames}, "profiles": profiles})


@pytest.mark.parametrize(
    ("text", "words", "note"),
    [
        (
            _perf(("100 cycles", "a"), ("300 cycles", "b")),
            "400 cycles in 2 different stacks; largest self weights: b",
            "",
        ),
        (_perf(("1 cpu-clock:u", "a"), ("3 cpu-clock:u", "a")), "4 ns in 1 stack", ""),
        (_perf(("5 task-clock:u", "a"), ("5 task-clock:u", "a")), "2 samples in 1 stack", ""),
        (
            _speedscope(("bytes", [9, 9]), ("seconds", [2, 1]), ("milliseconds", [1000, 0])),
            "contains 4 s",
            "left out: bytes",
        ),
        ("main;a 3\n 1\nlost events\n", f"4 {UNNAMED} in 2 different stacks", "1 of 3 lines"),
        ("main;a 9 3\nmain;b 9 1\n", f"4 {UNNAMED}", "two numbers"),
        (_speedscope(("none", [7, 1])), f"8 {UNNAMED}", ""),
        (_speedscope(("seconds", [7, -2])), "7 s in 1 stack", "1 of 2 samples have a negative weight"),
        (_speedscope(("samples", [7])), "7 samples in 1 stack", "1 weights for 2 samples"),
        (_evented(_UNCLOSED), "5 s in 2 different stacks; largest self weights: b 60 %", "2 frames were"),
        (_evented(_CLOSED, _CROSSED), "2 s in 1 stack", "1 of 2 profiles are damaged"),
        (_evented("O 1 0, C 2 0"), "1 s in 1 stack", "No frame is open for 83.3 % of the time that the file says"),
        ("app  31 cycles:u: \n\t  55d0 work+0x10 (/bin/app)\n\n" * 2, "2 samples in 1 stack", ""),
        ("app 31/32 250000 cpu-clock:ppp: \n\t 55d0 work (/bin/app)\n\n" * 2, "2 samples in 1 stack", ""),
        ("app 9 1.5: 7 cycles:\n\n\t 6e main (/x/app)\n\n" * 2, "2 samples in 1 stack; largest self weights: main", ""),
        ("app 9 1.5: 7 cycles:\n\nlib 9 1.6: 7 cycles:\n\t 6e f (/x/app)\n", "2 samples in 2 different stacks", ""),
    ],
)
def test_stacks_are_summed_in_one_unit_and_as_far_as_they_can_be(text, words, note, tmp_path):
    answer = _read(tmp_path / "stacks", text)
    assert words in answer.opening[0].text
    assert note in " ".join(answer.diagnostics)


def _samply(shared, weights, spent):
    """main calls an address of libfast; a second thread has one sample without a stack.

    As samply writes it (version 49), or Firefox since version 66: one set of tables, and distances between callers.
    """
    tables = {
        "stackTable": {"frame": [0, 1], "prefixOffset": [0, 1]} if shared else {"frame": [0, 1], "prefix": [None, 0]},
        "frameTable": {"func": [0, 1]},
        "funcTable": {"name": [0, 1], "resource": [-1, 0]},
        "resourceTable": {"name": [2]},
        "stringArray": ["main", "0x1f0", "libfast"],
    }
    samples = {"stack": [1, 1, 0], "weight": weights, "weightType": "samples", "threadCPUDelta": spent}
    idle = {"stack": [None], "weight": None, "weightType": "samples"}
    threads = [
        {"name": "app", "samples": samples} | ({} if shared else tables),
        {"name": "idle", "samples": idle} | ({} if shared else tables),
    ]
    meta = {"categories": [], "interval": 1.0, "preprocessedProfileVersion": 68 if shared else 49}
    return json.dumps({"meta": meta, "threads": threads} | ({"shared": tables} if shared else {}))


@pytest.mark.parametrize("shared", [False, True])
def test_a_profile_of_samply_weighs_its_samples_and_says_what_waited(shared, tmp_path):
    answer = _read(tmp_path / "profile.json", _samply(shared, [1, 6, 2], [900, 0, 40]))
    text = answer.opening[0].text
    assert "The profile contains 10 samples in 3 different stacks; largest self weights: 0x1f0 in libfast 70 %;" in text
    assert "In 60 % of the weight, the thread used no processor time" in text
    assert "70 % of the weight is in functions without a name" in text
    assert answer.frames[1]["frame"] == "main"


def test_tables_of_samply_that_do_not_fit_are_refused_with_what_is_wrong(tmp_path):
    with pytest.raises(UsageError, match="a thread has 3 samples and 2 weights"):
        _read(tmp_path / "p.json", _samply(False, [1, 6], None))


@pytest.mark.parametrize(
    ("name", "text", "way"),
    [
        ("perf.data", "PERFILE2h", "perf script"),
        ("perf.data", "PERFFILEh", "perf script"),
        ("mult.json", '{"benchmarks":[{"metadata":{"loops":64},"runs":[{"warmups":[[64,1e-6]]}]}]}', "compare-imports"),
        ("profile.json", '{"alloc_samples": 17, "elapsed_time_sec": 3.5, "files": {}}', "scalene view"),
        ("perf.trace", "SIMPLEPERF\x00", "stackcollapse.py"),
        ("a.jfr", "FLR\x00", "jfrconv"),
        ("cpu.pprof", "\n\x04\x08\x01\x10\x02", "go tool pprof"),
        ("memray-app.bin", "memray\x00", "memray stats"),
        ("memray-lz4.bin", '\x04"M\x18@@\x02?\x05memray', "memray stats"),
        ("stats.json", '{"total_num_allocations": 2, "allocation_size_histogram": []}', "memray flamegraph"),
        ("session.json", '{"start_time": 1.0, "sample_count": 3, "root_frame": {}}', "py-spy record"),
        ("flame.svg", '<?xml version="1.0"?>\n<svg>', "-f raw"),
        ("heap.json", '{"dhatFileVersion":2}', "dh_view"),
        ("gecko.json", '{"meta": {"abi": "x", "product": "Firefox"}}', "profiler.firefox.com"),
        ("a.pftrace", "\n\x12", "traceconv"),
        ("pmc_perf.csv", "Dispatch_ID,Kernel_Name,SQ_WAVES\n", "rocprof-compute analyze"),
        ("counter_collection.csv", '"Dispatch_Id","Kernel_Name","Counter_Name","Counter_Value"\n', "kernel_trace.csv"),
        ("hip_api_stats.csv", '"Name","Calls","TotalDurationNs","AverageNs"\n', "*_trace.csv"),
        ("r_cuda_gpu_kern_sum.csv", "Time (%),Total Time (ns),Instances,Avg (ns)\n1,2,3,4\n", "--type sqlite"),
        ("nccl.log", "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P\n", "aisp_profile_read"),
        ("fr.json", '{"version": "2.4", "pg_config": {}, "entries": []}', "aisp_profile_read"),
        (
            "chrome.json",
            '[{"ph": "X", "name": "x", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "cat": "blink"}]',
            "Perfetto",
        ),
    ],
)
def test_a_refusal_names_the_tool_that_helps(name, text, way, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as refused:
        load.load(tmp_path / name)
    assert way in refused.value.hint
    assert "cut short" not in refused.value.hint


def _kineto(tmp_path, events):
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return load.load(tmp_path / "t.json")


def _event(cat, name, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def test_a_trace_without_a_device_has_no_idle_device(tmp_path):
    events = [_event("user_annotation", f"ProfilerStep#{n}", 100 * n, 90) for n in range(3)]
    profile = _kineto(tmp_path, [*events, _event("cpu_op", "aten::mm", 10, 50)])
    assert all(step.idle_ns is None for step in profile.timeline.steps)
    assert not insights(profile).found
    answer = aisp_profile_read(ReadParams(profile=str(tmp_path / "t.json")), None)
    assert "no device activity" in answer.opening[0].text
    assert "aten::mm (50 µs" in answer.opening[0].text


def test_a_slow_data_loader_is_the_first_sentence(tmp_path):
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [_event("user_annotation", name, 100 * n, 60) for n in range(3)]
    events += [_event("cpu_op", "aten::mm", 100 * n + 60, 40) for n in range(3)]
    events += [_event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 60, 40)]
    _kineto(tmp_path, events)
    answer = aisp_profile_read(ReadParams(profile=str(tmp_path / "t.json")), None)
    assert "60 % of 300 µs, the program waited for its data loader (180 µs in 3 calls)" in answer.opening[0].text
    assert "aten::mm" in answer.opening[1].text
    assert "evaluate_function" not in answer.opening[1].text
    with pytest.raises(Unavailable) as refused:
        bottlenecks.of_profile(str(tmp_path / "t.json"))
    assert refused.value.next_steps[0][0] == "aisp_profile_read"


@pytest.mark.parametrize("recorded", [False, True])
def test_host_code_is_named_only_where_something_recorded_it(recorded, tmp_path):
    launches = [_event("cuda_runtime", "cudaLaunchKernel", 1000 * n, 5, correlation=n + 1) for n in range(4)]
    kernels = [_event("kernel", "mm", 1000 * n + 10, 100, stream=7, correlation=n + 1) for n in range(4)]
    around = [_event("python_function", "tokenize", 0, 4000)] if recorded else []
    title = next(
        i.title for i in insights(_kineto(tmp_path, [*launches, *kernels, *around])).found if i.rule == "host_code"
    )
    assert ("host code" in title) == recorded
    assert ("does not say" in title) != recorded


def test_calls_and_kernels_of_amd_and_volta_are_what_they_are():
    assert [call_kind(n) for n in ("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipFree")] == [
        "launch",
        "launch",
        "allocate",
    ]
    assert call_kind("hipMemcpyWithStream") == "copy"
    assert blocking("hipMemcpyWithStream")
    assert not blocking("hipMemcpyAsync")
    assert family("volta_scudnn_128x64_relu_interior_nn_v1") == "convolution"
    assert plain_gemm("volta_scudnn_128x64_relu_interior_nn_v1")
    assert not plain_gemm("volta_fp16_s884cudnn_fp16_128x128")
    assert [family(n) for n in ("miopenSp3AsmConv_v30", "igemm_fwd_gtcx35_nhwc", "Cijk_Ailk_Bljk")] == [
        "convolution", "convolution", "gemm"
    ]  # fmt: skip
