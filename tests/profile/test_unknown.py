"""Facts that a profile lacks are reported as unknown: categories, causes of gaps, kinds of kernels."""

import dataclasses
import gzip
import json
import sqlite3
from pathlib import Path

import pytest
from problems import PRODUCT, STEPS
from simulate import GEMM, MS, POINTWISE, US, Sim, compute, ncu_csv, nsys_db, step

from aisp_mcp.errors import UsageError
from aisp_mcp.profile import compare, load
from aisp_mcp.profile.hangs import read as hangs
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.overview.words import opening
from aisp_mcp.profile.readers import kineto, snapshot, stacks
from aisp_mcp.profile.readers.files import look
from aisp_mcp.profile.timeline import names, summarize


def _event(category, name, at, length, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": length, "args": args}


def _written(path, events, **head):
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


def test_a_trace_of_pytorch_1_8_has_copies_and_steps(tmp_path):
    events = [_event("Operator", f"ProfilerStep#{n}", 100 * n, 90) for n in range(4)]
    events += [_event("Operator", "aten::copy_", 10, 20), _event("Runtime", "cudaMemcpyAsync", 12, 5, correlation=3)]
    events += [
        _event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 20, 7, stream=7, correlation=3, bytes=4096),
        _event("Memset", "Memset (Device)", 30, 2, stream=7, correlation=4),
        _event("Kernel", "sgemm", 40, 9, stream=7, correlation=5),
    ]
    table = load.load(_written(tmp_path / "t.json", events)).timeline
    assert [(row.name, row.total_ns) for row in table.memory] == [
        ("[CUDA memcpy Host-to-Device] pageable→device", 7000),
        ("[CUDA memset]", 2000),
    ]
    assert len(table.steps) == 4
    assert [row.name for row in table.operators] == ["aten::copy_"]


def test_a_category_that_nobody_knows_is_named(tmp_path):
    events = [_event("cpu_op", "aten::mm", 0, 5), *[_event("quantum_op", "q", n, 1) for n in range(3)]]
    notes = load.load(_written(tmp_path / "t.json", events)).diagnostics
    assert any("3 events of the unknown category 'quantum_op'" in note for note in notes)
    known = [_event("cpu_op", "aten::mm", 0, 5), _event("ac2g", "x", 0, 5)]
    assert not any("unknown category" in n for n in load.load(_written(tmp_path / "u.json", known)).diagnostics)


def _gaps(trace):
    table = summarize.profile(trace).timeline
    return [gap.cause for gap in sorted(table.gaps, key=lambda g: g.start_ns)], table.breakdown[0]


def test_a_gap_without_a_launch_record_is_unknown(tmp_path):
    sim = Sim()
    sim.kernel(ns=100 * US)
    sim.drained()
    sim.host(500 * US)
    sim.kernel(ns=100 * US)
    trace = kineto.read(sim.kineto(tmp_path / "t.json"))
    assert _gaps(trace)[0] == ["host"]
    causes, row = _gaps(dataclasses.replace(trace, api=trace.api[:1]))
    assert causes == ["unknown"]
    assert (row.idle_unknown_ns, row.idle_other_ns, row.idle_host_ns) == (505 * US, 0, 0)


def test_a_launch_call_that_ends_in_the_gap_held_the_host(tmp_path):
    def body(sim):
        compute(sim, 5)
        sim.drained()
        sim.now -= 150 * US  # the next launch begins while the device works, and returns long after
        sim.launch_ns = 1 * MS
        sim.kernel(ns=200 * US)
        sim.launch_ns = 4 * US

    sim = Sim()
    for number in range(STEPS):
        step(sim, number, lambda: body(sim))
    profile = load.load(sim.kineto(tmp_path / "t.json"), "steady")
    assert {gap.cause for gap in profile.timeline.gaps if gap.duration_ns > 500 * US} == {"host blocked"}
    findings = {i.rule: i for i in insights(profile).found}
    assert findings["launch_blocked"].evidence
    assert "launch_bound" not in findings
    assert "dependency_wait" not in findings


def _waiting(sim, told):
    for _ in range(10):
        sim.kernel(ns=100 * US)
        sim.free[0, 9] = sim.free[0, 7] + 60 * US
        sim.kernel(ns=100 * US, after=9, told=told)


@pytest.mark.parametrize("told", [True, False])
def test_waiting_for_an_event_is_claimed_where_it_is_recorded(told, tmp_path):
    sim = Sim()
    for number in range(STEPS):
        step(sim, number, lambda: _waiting(sim, told))
    answer = insights(load.load(sim.kineto(tmp_path / "t.json"), "steady"))
    assert ("dependency_wait" in {i.rule for i in answer.found}) == told
    if not told:
        reasons = {a.rule: a.reason for a in answer.abstained}
        assert "no record gives the reason" in reasons["dependency_wait"]


OLD_COPIES = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, "


def test_migrations_of_an_export_without_enum_tables_are_named(tmp_path):
    """nsys 2022 wrote no ENUM tables; 11 to 13 are its own kinds: managed pages that move."""
    rows = [(n * 1000, n * 1000 + 900, 0, 7, n, 4096, 10 + n) for n in (1, 2, 3)]
    tables = {"CUPTI_ACTIVITY_KIND_MEMCPY": (OLD_COPIES + "copyKind INTEGER", rows)}
    profile = load.load(nsys_db(tmp_path / "old.sqlite", [(0, 500, "k")], **tables))
    assert sorted(row.name.partition("]")[0] for row in profile.timeline.memory) == [
        "[CUDA memcpy Unified Device-to-Device",
        "[CUDA memcpy Unified Device-to-Host",
        "[CUDA memcpy Unified Host-to-Device",
    ]
    rules = {i.rule for i in insights(profile).found}
    assert "unified_memory" in rules
    assert not rules & {"exposed_copies", "pageable_copies", "device_copies"}


def _listed():
    rows = (Path(__file__).parent / "data" / "kernel_names.tsv").read_text().splitlines()[1:]
    return [row.split("\t") for row in rows]


def test_kernels_of_public_traces_and_sources_have_the_class_of_their_own_name():
    """The classes were read by eye, name by name; each row names its source."""
    rows = _listed()
    assert len({name for _, name, _ in rows}) == len(rows) >= 400
    assert [(name, names.family(name)) for kind, name, _ in rows if names.family(name) != kind] == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8", "gemm"),
        ("_attn_fwd", "attention"),
        ("attn_fwd", "attention"),
        ("sage_fwd", "attention"),
        ("bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128_s6_et64x8_m64x8x32_cga1x1x1", "gemm"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>", "copy"),
        ("void vllm::reshape_and_cache_kernel<uint16_t>", "copy"),
        ("my_kernel", "other"),
        ("small_reduce_kernel", "reduction"),
        ("void flashinfer::norm::GemmaRMSNormKernel<4u, __half>(__half*)", "normalization"),
        ("void flashinfer::sampling::MinPSamplingFromProbKernel<512u>(float*)", "sampling"),
        ("void flashinfer::gemm::fp4_gemm_kernel<128>(void*)", "gemm"),
        ("void moe::notes::finalizer<cutlass::bfloat16_t>(cutlass::bfloat16_t*)", "other"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>(Params)", "attention"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdIfEEEEvT1_", "normalization"),
        ("void pplx::internode::dispatchKernel<true>(int*)", "communication"),
        ("two_shot_all_reduce_kernel_inplace", "communication"),
        ("void at::native::upsample_bilinear2d_out_frame<float>(int)", "elementwise"),
    ],
)
def test_names_of_other_libraries(name, kind):
    assert names.family(name) == kind


def test_rules_by_name_abstain_where_names_tell_nothing(tmp_path):
    sim = Sim()
    for number in range(STEPS):
        step(sim, number, lambda: compute(sim, 10, name="fancy_unnamed"))
    reasons = {a.rule: a.reason for a in insights(load.load(sim.kineto(tmp_path / "t.json"), "steady")).abstained}
    for rule in ("tensor_cores_unused", "unfused_attention", "unfused_pointwise"):
        assert "100 % of kernel time" in reasons[rule]


@pytest.mark.parametrize(
    ("device", "advised"),
    [
        ({"name": "Tesla P100-PCIE-16GB", "computeMajor": 6, "computeMinor": 0}, None),
        ({"name": "NVIDIA GeForce GTX 1660", "computeMajor": 7, "computeMinor": 5}, None),
        ({"name": "Tesla T4", "computeMajor": 7, "computeMinor": 5}, "Use fp16 (autocast with"),
        ({"name": "Tesla V100", "computeMajor": 7, "computeMinor": 0}, "Use fp16 (autocast with"),
        ({"name": "A100", "computeMajor": 8, "computeMinor": 0}, "Use bf16"),
        ({"name": "unheard of"}, "If the device has tensor cores"),
    ],
)
def test_no_advice_on_tensor_cores_that_are_not_there(device, advised, tmp_path):
    events = [_event("kernel", "ampere_sgemm_128x64_tn", n * 10, 9, stream=7, correlation=n) for n in range(20)]
    path = _written(tmp_path / "t.json", events, deviceProperties=[{"id": 0, **device}])
    fix = next((i.fix for i in insights(load.load(path)).found if i.rule == "tensor_cores_unused"), None)
    assert fix is None if advised is None else fix.startswith(advised)


def test_columns_of_nvtx_ranges_do_not_hide_the_counters(tmp_path):
    plain = ncu_csv(tmp_path / "plain.csv", [PRODUCT])
    columns = ('"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"',
               '"Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"')  # fmt: skip
    lines = []
    for row, more in zip(plain.read_text().splitlines(), (columns, ('""', '""'), ('"1 step"', '""')), strict=True):
        cells = row.split(",", 4)
        lines.append(",".join([*cells[:4], *more, cells[4]]))
    (tmp_path / "nvtx.csv").write_text("\n".join(lines) + "\n")
    assert load.load(tmp_path / "nvtx.csv").kernels == load.load(plain).kernels


def test_every_second_word_is_uncoalesced(tmp_path):
    """Stride 2 of 4-byte words: 8 sectors per request, 16 bytes of 32 used."""
    strided = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 8e6,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 16.0,
    }
    findings = insights(load.load(ncu_csv(tmp_path / "raw.csv", [{**PRODUCT, **strided}]))).found
    assert "uncoalesced_access" in {i.rule for i in findings}


def test_one_flush_of_the_cache_is_no_churn(tmp_path):
    """Ten segments go back at once, and are taken again."""
    calls = [("segment_alloc", n) for n in range(10)] + [("segment_free", n) for n in range(10)]
    rows = [{"action": a, "addr": n, "size": 1 << 21, "time_us": t} for t, (a, n) in enumerate(calls + calls[:10])]
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"segments": [], "device_traces": [rows]}))
    profile = snapshot.read(path)
    assert (profile.memory[0].segment_frees, profile.memory[0].segment_flushes) == (10, 1)
    assert "allocator_churn" not in {i.rule for i in insights(profile).found}


def _fixed_window(path, rounds):
    sim = Sim()
    for _ in range(rounds):
        sim.kernel(GEMM, 1000 * MS // rounds)
        sim.kernel(POINTWISE, 500 * MS // rounds)
    return load.load(sim.kineto(path))


def test_windows_of_fixed_length_with_other_launch_counts_are_not_comparable(tmp_path):
    a, b = _fixed_window(tmp_path / "a.json", 100), _fixed_window(tmp_path / "b.json", 150)
    difference = compare.compare(a, b)
    assert (difference.verdict, difference.ratio) == ("not comparable", None)
    assert "1.5 times as often" in difference.warnings[0]
    assert compare.compare(a, a).verdict == "same"


@pytest.mark.parametrize("ranks", [1, 4])
def test_an_unnamed_kernel_is_compute_in_a_program_of_one_rank_only(tmp_path, ranks):
    sim = Sim()
    for _ in range(300):
        sim.kernel(ns=20 * US)
        sim.kernel("void acme::exchange<8>(int*)", 4 * US)
    path = Path(sim.kineto(tmp_path / "t.json"))
    document = json.loads(path.read_text())
    document["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": ranks}
    path.write_text(json.dumps(document))
    profile = load.load(path)
    row = profile.timeline.breakdown[0]
    assert row.compute_ns + row.unknown_ns == 300 * 24 * US
    assert row.unknown_ns == (0 if ranks == 1 else 300 * 4 * US)
    kinds = {kernel.name: kernel.kind for kernel in profile.timeline.kernels}
    assert kinds["void acme::exchange<8>(int*)"] == ("other" if ranks == 1 else "unknown")
    found = insights(profile).found
    assert ("may compute or communicate" in opening(profile, found)[0].text) == (ranks > 1)
    assert ("small_kernels" in {insight.rule for insight in found}) == (ranks == 1)


def _nsys_without_cuda(path, tables):
    with sqlite3.connect(path) as db:
        for table in tables:
            db.execute(f"CREATE TABLE {table} (id INTEGER, value TEXT)")
    return path.read_bytes()


PROCESS = {"ph": "M", "name": "process_name", "pid": 4, "args": {"name": "Ascend Hardware"}}
REFUSED = [
    (b"", "is empty: 0 bytes"),
    (b"PK\x03\x04....", "a zip archive"),
    (gzip.compress(b"t.json".ljust(257, b"\0") + b"ustar".ljust(255, b"\0"), mtime=0), "a tar archive"),
    (json.dumps({"traceEvents": [PROCESS, {**PROCESS, "ph": "X", "ts": 1, "dur": 2}]}).encode(), "torch_npu"),
    (json.dumps({"traceEvents": [{**PROCESS, "args": {"name": "app"}}]}).encode(), "no event with a duration"),
    (json.dumps({"traceEvents": [_event("gc", "minor", 3, 9)]}).encode(), "1 of 'gc'"),
    (["StringIds", "OSRT_API", "TARGET_INFO_GPU"], "an nsys export without CUDA and NVTX events; it has OSRT_API"),
    (["StringIds", "META_DATA_EXPORT", "ENUM_NSYS_EVENT_TYPE", "SCHED_EVENTS"], "NVTX events; it has SCHED_EVENTS"),
    (["notes"], "none of nsys's tables"),
    (b'{"traceEvents": [{"ph": "X", "name": "D:\\q"}]}', "invalid escape character in string at byte 42"),
    (b'{"traceEvents": [{"ph": "X", "name": "a"},', "ends after 42 bytes, inside its list of events"),
]


@pytest.mark.parametrize(("content", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_refusal_says_what_was_found(content, words, tmp_path):
    data = _nsys_without_cuda(tmp_path / "db", content) if isinstance(content, list) else content
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(UsageError) as refused:
        load.load(tmp_path / "f")
    assert words in refused.value.message


def test_a_sample_of_py_spy_without_frames_is_counted(tmp_path):
    (tmp_path / "f").write_text("main (a.py:1);work (a.py:9) 7\n 2\n")
    assert stacks.weighted(look(tmp_path / "f"))[0] == {("main (a.py:1)", "work (a.py:9)"): 7, ("[no frames]",): 2}


def test_a_trace_of_jax_on_a_cpu_has_host_operators(tmp_path):
    host = {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}}
    work = {"ph": "X", "pid": 7, "tid": 3, "ts": 5, "dur": 40, "name": "fusion.2"}
    operators = load.load(_written(tmp_path / "t.json", [host, work])).timeline.operators
    assert [(row.name, row.total_ns) for row in operators] == [("fusion.2", 40_000)]


@pytest.mark.parametrize(("calls", "words"), [((3, 3), "made the same 3 calls"), ((4, 3), "number 4 of group")])
def test_records_of_gloo_compare_calls_and_show_no_hang(calls, words, tmp_path):
    for rank, count in enumerate(calls):
        entries = [
            {"profiling_name": "gloo:all_reduce", "state": "scheduled", "process_group": ["0", ""],
             "input_sizes": [[8]], "collective_seq_id": number}
            for number in range(1, count + 1)
        ]  # fmt: skip
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps({"pg_config": {}, "entries": entries}))
    text = hangs.read(hangs.in_folder(tmp_path), "flight", tmp_path).opening[0].text
    assert "never say that a call has completed" in text
    assert words in text
