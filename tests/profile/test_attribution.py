"""Kineto through the tools: insights with evidence, gaps, operators and frames with their kernels, in pages."""

import contextlib
import json
import sqlite3

import oracle_tools
import pytest
from simulate import GEMM, nsys_db

from aisp_mcp.profile import load
from aisp_mcp.profile.timeline.attribution import OUTSIDE
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings

KINETO = str(oracle_tools.DATA / "train_step_h200.kineto.json.gz")


@pytest.fixture
def ask(tmp_path):
    ctx = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    load_catalog(ctx.settings)

    def call(tool, **args):
        answer = execute(tool, args, ctx)
        assert answer.status.value == "ok", answer.error
        return answer.model_dump(mode="json", exclude_none=True)["result"]

    return call


def _event(category, name, at, length, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": length, "args": args}


def _launch(at, link, kernel, length):
    return [
        _event("cuda_runtime", "cudaLaunchKernel", at, 2, correlation=link),
        _event("kernel", kernel, at + 100 * link, length, device=0, stream=7, correlation=link),
    ]


def _nested(path):
    """main → Linear → aten::linear → aten::addmm → gemm; aten::relu → point-wise; and a launch outside of all."""
    events = [
        _event("python_function", "train.py(3): main", 0, 50),
        _event("python_function", "nn.Module: Linear_0", 1, 20),
        _event("cpu_op", "aten::linear", 2, 12),
        _event("cpu_op", "aten::addmm", 4, 8),
        *_launch(6, 1, GEMM, 70),
        _event("cpu_op", "aten::relu", 30, 8),
        *_launch(32, 2, "pointwise", 20),
        *_launch(60, 3, "loose", 10),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_device_time_goes_to_the_calls_that_launched_it(tmp_path):
    table = load.load(_nested(tmp_path / "t.json")).timeline
    ops = {row.name: row for row in table.operators}
    assert (ops["aten::linear"].gpu_ns, ops["aten::linear"].self_gpu_ns, ops["aten::linear"].kernel) == (
        70_000,
        0,
        None,
    )
    assert (ops["aten::addmm"].self_gpu_ns, ops["aten::addmm"].kernel) == (70_000, GEMM)
    assert (ops[OUTSIDE].gpu_ns, ops[OUTSIDE].kernel) == (10_000, "loose")
    frames = {row.name: row for row in table.frames}
    assert (frames["train.py(3): main"].gpu_ns, frames["train.py(3): main"].self_gpu_ns) == (90_000, 20_000)
    assert frames["nn.Module: Linear_0"].gpu_ns == 70_000
    assert sum(row.self_gpu_ns for row in table.operators) == sum(k.total_ns for k in table.kernels)
    assert sum(row.self_gpu_ns for row in table.frames) == sum(k.total_ns for k in table.kernels)


@pytest.mark.parametrize(("category", "table"), [("cpu_op", "operators"), ("user_annotation", "ranges")])
def test_a_call_inside_one_of_its_own_name_counts_once(category, table, tmp_path):
    path = tmp_path / "t.json"
    events = [_event(category, "f", 0, 50), _event(category, "f", 5, 20), *_launch(6, 1, GEMM, 70)]
    path.write_text(json.dumps({"traceEvents": events}))
    row = getattr(load.load(path).timeline, table)[0]
    assert (row.count, row.gpu_ns, row.operations) == (2, 70_000, 1)


def test_every_kernel_of_a_real_capture_has_its_operator():
    table = load.load(KINETO).timeline
    assert sum(row.self_gpu_ns for row in table.operators) == sum(
        row.total_ns for rows in (table.kernels, table.memory) for row in rows if row.total_ns
    )
    rows = {row.name: row for row in table.operators}
    assert "nvjet" in rows["aten::addmm"].kernel
    assert rows["aten::linear"].gpu_ns >= rows["aten::addmm"].self_gpu_ns * 0.5


def test_insights_of_a_kineto_trace_have_evidence_and_abstentions(ask):
    rank = ask("aisp_profile_hta", traces=[KINETO], section="insights")["ranks"][0]
    assert rank["rows"][0]["evidence"]
    assert {a["rule"] for a in rank["abstained"]} >= {"exposed_communication", "register_spills"}
    gaps = ask("aisp_profile_hta", traces=[KINETO], section="gaps", limit=5)["ranks"][0]
    assert [row["duration_ns"] for row in gaps["rows"]] == sorted(
        (r["duration_ns"] for r in gaps["rows"]), reverse=True
    )
    assert gaps["rows_left_out"] == 45
    assert ask("aisp_profile_hta", traces=[KINETO], section="operators", limit=3)["ranks"][0]["rows"][0]["gpu_ns"] > 0


NSYS = str(oracle_tools.DATA / "train_step_h200.nsys.sqlite.gz")
RAW = str(oracle_tools.DATA / "five_kernels_h200.ncu-raw.csv.gz")
PAGED = [
    ("aisp_nsys_summary", {"report": NSYS, "section": "kernels"}, lambda r: (r["rows"], r["rows_left_out"])),
    ("aisp_nsys_summary", {"report": NSYS, "section": "api"}, lambda r: (r["rows"], r["rows_left_out"])),
    ("aisp_profile_kernels", {"profile": KINETO}, lambda r: (r["kernels"], r["left_out"])),
    ("aisp_ncu_summary", {"report": RAW}, lambda r: (r["kernels"], r["kernels_left_out"])),
    ("aisp_profile_hta", {"traces": [KINETO], "section": "operators"},
     lambda r: (r["ranks"][0]["rows"], r["ranks"][0]["rows_left_out"])),
    ("aisp_compare_nsys", {"a": NSYS, "b": KINETO}, lambda r: (r["kernels"], r["left_out"])),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "args", "table"), PAGED, ids=[f"{t}-{a.get('section', '')}" for t, a, _ in PAGED])
def test_pages_join_to_the_whole_table(tool, args, table, ask):
    first, left = table(ask(tool, **args, limit=4))
    second, later = table(ask(tool, **args, limit=4, offset=4))
    both, rest = table(ask(tool, **args, limit=8))
    assert first + second == both
    assert (left - later, later) == (4, rest)
    assert table(ask(tool, **args, limit=4, offset=100_000)) == ([], 0)


def test_a_ncu_report_is_read_directly_where_its_module_is(ask, tmp_path, monkeypatch):
    pytest.importorskip("ncu_report", reason="the extra ncu is not installed")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    report = oracle_tools.unpack("triton.ncu-rep.gz", tmp_path)
    answer = ask("aisp_ncu_summary", report=str(report))
    assert answer["source"]["path"] == str(report)
    names = {row["kernel"] for row in answer["kernels"]}
    page = ask("aisp_ncu_summary", report=str(oracle_tools.DATA / "triton.ncu-raw.csv.gz"))
    assert len(names) == len({row["kernel"] for row in page["kernels"]})


STAND_IN = """#!/bin/sh
# `nsys export --type sqlite ... --output FILE REPORT`: the database next to the report.
for word in "$@"; do case "$word" in --output=*) out="${word#--output=}";; esac; done
[ -n "$out" ] || { while [ $# -gt 0 ]; do [ "$1" = "--output" ] || [ "$1" = "-o" ] && out="$2"; shift; done; }
cp '%s' "$out"
"""


def test_an_nsys_report_is_read_directly_where_nsys_is(ask, tmp_path, monkeypatch):
    database = nsys_db(tmp_path / "inside.sqlite", [(0, 10, "k"), (20, 30, "k")])
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(STAND_IN % database)
    program.chmod(0o755)
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"nsys's own")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    answer = ask("aisp_nsys_summary", report=str(report), section="kernels")
    assert answer["rows"][0]["count"] == 2
    assert answer["source"]["path"] == str(report)
    program.unlink()  # made once per content
    assert ask("aisp_profile_kernels", profile=str(report))["kernels"][0]["count"] == 2


GRAPHS = "graphs_streams.nsys.sqlite.gz"  # four nodes, replayed eight times


def replays(path, *statements):
    """Replayed operations and their own time, by what captured them."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    profile = load.load(path)
    return {row.name: (row.operations, row.gpu_ns, row.self_gpu_ns) for row in profile.timeline.replays}


def opened(name, start, end, thread=281512121469094):
    """A statement that adds an NVTX range to an export."""
    return (
        "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, text) "
        f"VALUES ({start}, {end}, 59, {thread}, '{name}')"
    )


def test_what_a_graph_replays_belongs_to_the_range_that_captured_it(tmp_path):
    path = oracle_tools.unpack(GRAPHS, tmp_path)
    whole = 134_048
    assert replays(path) == {"[captured outside of any range]": (32, whole, whole)}
    inner = opened("attention", 5_861_000_000, 5_873_200_000)  # two of the four nodes
    found = replays(
        path, opened("layer", 5_844_000_000, 5_873_300_000), inner, opened("elsewhere", 0, 9_000_000_000, 1)
    )
    assert found["layer"][:2] == (32, whole)
    assert found["attention"][0] == 16
    assert found["attention"][2] + found["layer"][2] == whole
    assert "elsewhere" not in found
    assert replays(path, "DROP TABLE CUDA_GRAPH_NODE_EVENTS") == {
        "[the recording does not say what captured it]": (32, whole, whole)
    }


def test_a_trace_without_captures_says_so(ask, tmp_path):
    args = {"device": 0, "stream": 7, "correlation": 1}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9, "ts": 1000, "dur": 20}
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"fused_{at}", "pid": 0, "tid": 7, "ts": 1050 + 30 * at, "dur": 20}
        for at in range(3)
    ]
    path = tmp_path / "replay.json"
    path.write_text(json.dumps({"traceEvents": [{**event, "args": args} for event in (call, *kernels)]}))
    said = " ".join(statement["text"] for statement in ask("aisp_profile_read", profile=str(path))["opening"])
    assert "CUDA graphs replayed 100 % of the device work, and the recording does not say which operator" in said
