"""The tools as a caller meets them: envelopes within 8 kB, files, jobs' refusals, a real run of torch.profiler."""

import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import oracle_tools
import pytest

from aisp_mcp.errors import NotFound
from aisp_mcp.profile.digest import Section
from aisp_mcp.profile.pictures import flame
from aisp_mcp.profile.readers import nsys
from aisp_mcp.profile.recording import commands, cost, find, record, torch_child
from aisp_mcp.runs import profiles
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings

D = oracle_tools.DATA
NSYS, KINETO = str(D / "train_step_h200.nsys.sqlite.gz"), str(D / "train_step_h200.kineto.json.gz")
RAW, DETAILS = str(D / "five_kernels_h200.ncu-raw.csv.gz"), str(D / "five_kernels_h200.ncu-details.csv.gz")
MEMORY = str(D / "train_step_h200.memory.json.gz")


@pytest.fixture
def ctx(tmp_path):
    settings = Settings(home=tmp_path / "home", bench_roots=(tmp_path,))
    load_catalog(settings)
    return Context(settings=settings)


def call(ctx, tool, **args):
    answer = execute(tool, args, ctx)
    assert answer.status.value == "ok", answer.error
    return answer.model_dump(mode="json", exclude_none=True)["result"]


def refused(ctx, tool, **args):
    answer = execute(tool, args, ctx)
    assert answer.status.value == "error"
    assert answer.error.hint
    return answer.error.code


READS = [("aisp_nsys_summary", {"report": NSYS, "section": s, "limit": 50}) for s in Section.__args__[:2]]
READS += [("aisp_nsys_summary", {"report": NSYS, "section": s}) for s in Section.__args__[2:]]
READS += [
    ("aisp_ncu_summary", {"report": RAW, "details": DETAILS}),
    ("aisp_ncu_summary", {"report": RAW, "details": DETAILS, "kernel": 7}),
    ("aisp_profile_hta", {"traces": [KINETO]}),
    ("aisp_profile_kernels", {"profile": NSYS}),
    ("aisp_profile_kernels", {"profile": KINETO}),
    ("aisp_compare_nsys", {"a": NSYS, "b": NSYS}),
    ("aisp_compare_ncu", {"a": RAW, "b": RAW}),
    ("aisp_profile_roofline", {"profile": RAW}),
    ("aisp_profile_memory", {"snapshot": MEMORY}),
]


@pytest.mark.parametrize(("tool", "args"), READS, ids=[f"{t}-{a.get('section', '')}" for t, a in READS])
def test_answers_are_small_and_say_where_they_come_from(tool, args, ctx):
    result = call(ctx, tool, **args)
    assert len(json.dumps(result)) <= 8000
    if "source" in result:
        path = next(v for v in args.values() if isinstance(v, str) and v.startswith("/"))
        assert result["source"]["sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()
        assert result["source"]["path"] == path


def test_the_summary_names_the_problem_of_the_capture(ctx):
    result = call(ctx, "aisp_nsys_summary", report=NSYS)
    assert {"unfused_pointwise", "launch_bound"} & {i["rule"] for i in result["insights"]}
    row = result["breakdown"][0]
    parts = [v for k, v in row.items() if k not in ("device", "span_ns", "communication_overlap")]
    assert sum(parts) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("tool", "args", "code"),
    [
        ("aisp_nsys_summary", {"report": KINETO}, "WRONG_KIND"),
        ("aisp_nsys_summary", {"report": "/no/such"}, "NO_PROFILE"),
        ("aisp_ncu_summary", {"report": NSYS}, "WRONG_KIND"),
        ("aisp_ncu_summary", {"report": RAW, "kernel": 99}, "NO_KERNEL"),
        ("aisp_profile_kernels", {"profile": RAW}, "WRONG_KIND"),
        ("aisp_profile_memory", {"snapshot": KINETO}, "BAD_PROFILE"),
        ("aisp_profile_memory", {}, "NO_COMMAND"),
        ("aisp_profile_torch", {"script": "/no/such.py"}, "NO_SCRIPT"),
        ("aisp_profile_nsys", {}, "NO_COMMAND"),
        ("aisp_profile_nsys", {"command": ["/no/such/program"]}, "NO_PROGRAM"),
        ("aisp_profile_nsys", {"report": "/no/such.nsys-rep"}, "NO_PROFILE"),
        ("aisp_profile_ncu", {"report": "/no/such.ncu-rep", "command": ["true"]}, "NO_COMMAND"),
        ("aisp_profile_flame", {"profile": RAW}, "WRONG_KIND"),
    ],
)
def test_refusals_say_what_to_do(tool, args, code, ctx):
    assert refused(ctx, tool, **args) == code


def test_a_script_without_its_interpreter_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    with pytest.raises(NotFound) as refusal:
        record.check_command([str(tmp_path / "train.py"), "--steps", "5"])
    assert f"python {tmp_path / 'train.py'} --steps 5" in refusal.value.hint


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_a_missing_profiler_is_named_with_the_places(name, ctx, monkeypatch):
    monkeypatch.setattr(find, "_folders", lambda *_: iter(()))
    monkeypatch.setattr(find, "_inside_compute", lambda *_: None)
    monkeypatch.setattr(find.shutil, "which", lambda n, path=None: None if n == name else f"/bin/{n}")
    assert refused(ctx, f"aisp_profile_{name}", command=["true"]) == "NOT_INSTALLED"


@pytest.mark.parametrize("form", ["html", "speedscope", "collapsed"])
@pytest.mark.parametrize("profile", [NSYS, KINETO], ids=["nsys", "kineto"])
def test_flames_hold_all_the_time(form, profile, ctx):
    result = call(ctx, "aisp_profile_flame", profile=profile, format=form)
    path = Path(result["file"]["path"])
    assert path.is_relative_to(ctx.settings.home)
    text = path.read_text()
    if form == "html":
        assert text.count("<script") == 1
        assert "default-src 'none'" in text
        assert "http://" not in text
        assert "https://" not in text
    else:
        weights, _ = flame.stacks(path)
        assert sum(weights.values()) == result["total"]


def test_self_time_is_duration_without_children():
    results = {}
    results = flame.defaultdict(int)
    flame._nest("t", [(0, -100, "outer"), (10, -40, "a"), (20, -30, "b"), (50, -200, "late")], results)
    assert results == {
        ("t", "outer"): 20,
        ("t", "outer", "a"): 20,
        ("t", "outer", "a", "b"): 10,
        ("t", "outer", "late"): 50,
    }


def test_the_difference_is_a_page_and_data(ctx):
    result = call(ctx, "aisp_profile_compare", a=NSYS, b=NSYS)
    assert result["difference"]["verdict"] == "same"
    assert Path(result["file"]["path"]).read_text().startswith("<!doctype html>")


def test_a_comparison_reads_each_trace_once_and_nsys_own_reports_too(ctx, tmp_path, monkeypatch):
    report, exports = tmp_path / "run.nsys-rep", tmp_path / "home/profiles/exports"
    report.write_bytes(b"what nsys has exported before")
    exports.mkdir(parents=True)
    exported = oracle_tools.unpack("train_step_h200.nsys.sqlite.gz", tmp_path)
    exported.rename(exports / f"{hashlib.sha256(report.read_bytes()).hexdigest()}.sqlite")
    read, parsed = nsys.read, []
    monkeypatch.setattr(nsys, "read", lambda file: parsed.append(file.path) or read(file))
    result = call(ctx, "aisp_profile_compare", a=str(report), b=NSYS)
    assert result["difference"]["verdict"] == "same"
    assert 1 <= len(parsed) == len(set(parsed)), "each file once, unless an earlier view has read it"


def test_the_difference_of_a_run_reads_each_trace_once(tmp_path, monkeypatch):
    read, parsed = nsys.read, []
    monkeypatch.setattr(nsys, "read", lambda file: parsed.append(file.path) or read(file))
    trace = oracle_tools.unpack("train_step_h200.nsys.sqlite.gz", tmp_path)
    result = profiles._difference("ch01:twice", trace, trace, tmp_path)
    assert (result.error, result.file, len(parsed)) == (None, "difference.html", 1)
    assert "candidate against baseline" in (tmp_path / "difference.html").read_text()


def test_nothing_is_written_outside_without_permission(ctx, tmp_path):
    assert refused(ctx, "aisp_profile_flame", profile=NSYS, path=str(tmp_path / "x.html")) == "OUTSIDE_ROOTS"


class TestScrub:
    """Removal of what a profiler stores of the environment from what is kept."""

    SECRET = "tok-5f2a9c77e1"

    def test_values_leave_the_file_and_its_free_pages(self, tmp_path):
        path = oracle_tools.unpack("train_step_h200.nsys.sqlite.gz", tmp_path)
        with sqlite3.connect(path) as db:
            db.execute(
                "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'DeviceEnvironment'",
                (f"API_TOKEN={self.SECRET}\n" * 400,),
            )
            db.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_0', ?)", (f"X={self.SECRET}",))
            db.execute("INSERT INTO StringIds VALUES (99999, ?)", (f"login with {self.SECRET} done",))
        db.close()
        assert self.SECRET.encode() in path.read_bytes()
        before = oracle_tools.unpack(
            "train_step_h200.nsys.sqlite.gz",
            tmp_path.joinpath("b") if tmp_path.joinpath("b").mkdir() else tmp_path / "b",
        )
        assert record.scrub_database(path, [self.SECRET]) >= 3
        assert self.SECRET.encode() not in path.read_bytes()
        from aisp_mcp.profile import load

        assert load.load(path).timeline == load.load(before).timeline

    def test_whole_environments_leave_whatever_their_variables_are_called(self, tmp_path):
        path = oracle_tools.unpack("train_step_h200.nsys.sqlite.gz", tmp_path)
        with sqlite3.connect(path) as db:
            block = f"OLDPWD=/\0HARMLESS_NAME={self.SECRET}\0PATH=/usr/bin\0"
            db.execute("INSERT INTO StringIds VALUES (99999, ?)", (block,))
        db.close()
        record.scrub_database(path, [])
        assert self.SECRET.encode() not in path.read_bytes()

    @pytest.mark.parametrize("name", oracle_tools.NSYS_CAPTURES)
    def test_committed_captures_hold_no_environment(self, name, tmp_path):
        data = oracle_tools.unpack(name, tmp_path).read_bytes()
        assert not any(mark in data for mark in (b"OLDPWD=", b"PATH=/", b"HOME=/", b"AISP_", b"LOGNAME="))

    def test_which_values_are_secret(self):
        environ = {
            "API_KEY": "abcdef123",
            "HF_TOKEN": "hf_xyzxyz",
            "PATH": "/usr/bin:/bin",
            "PASSWORD": "short",
            "KEY_SIZE": "1234567",
        }
        assert record.secrets(environ) == ["abcdef123", "hf_xyzxyz"]


def test_command_lines():
    light = commands.nsys("nsys", ["python", "a.py"], Path("/o/r.nsys-rep"), "light", "step1")
    assert light[-2:] == ["python", "a.py"]
    assert "--sample=none" in light
    assert "--nvtx-capture=step1" in light
    assert not any("osrt" in word for word in light)
    argv = commands.ncu("ncu", ["./app"], Path("r"), commands.LaunchSelection("full", "gemm; rm -rf /", 3, 5))
    assert "--clock-control=none" in argv
    assert "--kernel-name=regex:gemm; rm -rf /" in argv  # one argument: no shell ever reads it


def test_the_permission_error_is_explained(tmp_path, monkeypatch):
    fake = tmp_path / "ncu"
    fake.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(record.Unavailable) as caught:
        record.ncu(str(fake), ["true"], tmp_path, commands.LaunchSelection("basic", count=1), 10)
    assert caught.value.code == "NO_COUNTERS"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.hint


def test_nsys_that_writes_nothing_is_an_error_with_its_last_words(tmp_path):
    fake = tmp_path / "nsys"
    fake.write_text("#!/bin/sh\necho 'The target application terminated. No capture range.' >&2\n")
    fake.chmod(0o755)
    with pytest.raises(record.ProcessError) as caught:
        record.nsys(str(fake), ["true"], tmp_path, "light", None, 10)
    assert caught.value.code == "NOTHING_RECORDED"
    assert "No capture range" in caught.value.message


FAKE_NSYS = """#!/bin/sh
for word; do
  case "$word" in --output=*) echo raw > "${word#--output=}" ;; esac
done
"""


@pytest.mark.parametrize("keep", [False, True])
def test_a_raw_report_is_kept_on_request_and_named_with_its_viewer(tmp_path, monkeypatch, keep):
    fake = tmp_path / "nsys"
    fake.write_text(FAKE_NSYS)
    fake.chmod(0o755)
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setattr(record, "export_nsys", lambda *_: folder / "report.sqlite")
    record.nsys(str(fake), ["true"], folder, "light", None, 10, keep=keep)
    line = f"nsys-ui '{folder / 'report.nsys-rep'}'"
    assert commands.viewer_commands(folder) == ([line] if keep else [])


def test_a_given_report_is_opened_where_it_lies(tmp_path):
    assert commands.viewer_commands(tmp_path, "/data/a.ncu-rep") == ["ncu-ui /data/a.ncu-rep"]
    assert commands.viewer_commands(tmp_path, "/data/a.raw.csv") == []


SCRIPT = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
opt = torch.optim.SGD(net.parameters(), 1e-3)
for number in range(4):
    with torch.profiler.record_function("train_step"):
        opt.zero_grad()
        net(torch.randn(32, 64)).square().mean().backward()
        opt.step()
"""


ATTENTION = """
import torch
q, x = torch.randn(1, 4, 256, 64), torch.randn(256, 256)
layer = torch.nn.LSTM(64, 64)
with torch.no_grad():
    for _ in range(3):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.nn.functional.linear(x, x)
    for _ in range(2):
        layer(torch.randn(20, 4, 64))
"""


@pytest.mark.parametrize(
    ("recorded", "plain", "words"),
    [
        ([4.0, 4.1, 3.9], [2.0, 2.1, 1.9], "With the recorder, it took 2 times as long as without (95 % interval "),
        (
            [2.0, 3.0, 1.0],
            [2.0, 1.0, 3.0],
            "The cost of recording is not measurable: with the recorder, it took 1 times",
        ),
        ([3.0], [2.0], "With the recorder, it took 1.5 times as long as without, in one pair of runs"),
    ],
)
def test_the_cost_of_recording_is_stated_with_its_noise(recorded, plain, words):
    runs = iter([*(seconds for pair in zip(plain, [*recorded[1:], 0.0], strict=True) for seconds in pair)])
    spent = cost.measure("always" if len(plain) > 1 else "auto", recorded[0], 10.0, lambda _: next(runs), "it")
    assert (spent.recorded_s, spent.plain_s) == (recorded, plain)
    assert spent.sentence.startswith(words)


def test_the_cost_of_a_long_recording_is_only_measured_on_request():
    runs = []
    again = lambda recorded: runs.append(recorded) or 1.0  # noqa: E731
    assert cost.measure("never", 1.0, 1.0, again, "it") is None
    spent = cost.measure("auto", 30.0, 31.0, again, "it")
    assert (spent.ratio, runs) == (None, [])
    assert "cost=always" in spent.sentence
    assert cost.measure("always", 30.0, 31.0, again, "it").plain_s == [1.0] * 3


@pytest.mark.torch
@pytest.mark.slow
class TestTorch:
    """torch.profiler itself, in a child, on whatever this machine has."""

    def test_a_run_without_the_recorder_begins_with_the_recorders_imports(self, tmp_path):
        pytest.importorskip("torch")
        script, imported = tmp_path / "imported.py", tmp_path / "imported.txt"
        script.write_text(f"import sys; open({str(imported)!r}, 'w').write(str('torch._dynamo' in sys.modules))")
        record.torch(str(script), [], tmp_path, "off", sys.executable, 100)
        assert imported.read_text() == "True"

    def test_a_training_step_on_this_machine(self, ctx, tmp_path):
        pytest.importorskip("torch")
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        attending = tmp_path / "attend.py"
        attending.write_text(SCRIPT + ATTENTION)
        result = call(ctx, "aisp_profile_torch", script=str(attending), mode="flops", cost="never")
        by_name = {row["name"]: row for row in result["operators"]}
        assert by_name["aten::addmm"]["count"] == 8
        # Two products per step forward, 2 m n k each.
        assert by_name["aten::addmm"]["flops"] == pytest.approx(4 * 2 * 2 * 32 * 64 * 256, rel=0.05)
        counted = [row["flops"] for row in result["operators"]]
        assert counted == sorted(counted, reverse=True)
        assert result["total_flops"] >= sum(counted) > 0
        assert Path(result["trace"]).exists()
        uncounted = {row["name"]: row["count"] for row in result["uncounted"]}
        assert uncounted["aten::_scaled_dot_product_flash_attention_for_cpu"] == 3
        assert uncounted["aten::mkldnn_rnn_layer"] == 2
        assert not {"aten::randn", "aten::addmm", "aten::mm", "aten::linear"} & set(uncounted)
        opening = result["opening"][0]["text"]
        assert opening.startswith(
            f"{result['total_flops']:,} FLOPs were counted, a lower bound: torch has no formula for"
        )
        assert result["uncounted"][0]["name"] in opening
        memory = call(ctx, "aisp_profile_memory", script=str(script), cost="never")
        assert memory["memory"][0]["peak_bytes"] >= 32 * 256 * 4
        assert memory["memory"][0]["end_bytes"] >= 0
        assert any("train.py" in frame for row in memory["memory"][0]["at_peak"] for frame in row["stack"])

    def test_the_operators_of_a_host_are_torchs_own_sums(self, tmp_path):
        torch = pytest.importorskip("torch")
        recorder = torch_child.TorchRecorder("full", cuda=False)
        recorder.start()
        weights = torch.ones(64, 64, requires_grad=True)
        optimizer = torch.optim.Adam([weights])
        (torch.ones(8, 64) @ weights).relu().sum().backward()
        optimizer.step()
        recorder.stop()
        trace = tmp_path / "trace.json"
        recorder.profiler.export_chrome_trace(str(trace))
        told = {row["name"]: row for row in torch_child._operators(recorder.profiler, trace)}
        read = {row["name"]: row for row in torch_child._host_operators(recorder.profiler, trace)}
        assert read.keys() == told.keys()
        for name, row in read.items():
            for field, amount in row.items():
                expected = told[name][field]
                assert amount == (pytest.approx(expected, abs=0.01) if field.endswith("_us") else expected), name

    def test_modules_and_stacks_have_content(self, ctx, tmp_path):
        pytest.importorskip("torch")
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        result = call(ctx, "aisp_profile_torch", script=str(script), mode="modules", cost="never")
        assert {"nn.Module: Sequential_0", "nn.Module: Linear_0"} <= {row["name"] for row in result["modules"]}
        unknown = {row[name] for row in result["operators"] for name in ("flops", "device_us", "self_device_us")}
        assert unknown == {None}, "nothing was counted, and no device took part"
        answer = call(ctx, "aisp_profile_torch", script=str(script), mode="stacks", cost="never")
        assert answer.get("cost") is None
        stacks = answer["stacks"]
        assert stacks[0]["self_ns"] > 0
        assert all(row["total_ns"] >= row["self_ns"] for row in stacks)

    def test_the_cost_of_recording_comes_before_the_profile(self, ctx, tmp_path, monkeypatch):
        pytest.importorskip("torch")
        monkeypatch.setattr(cost, "SHORT_S", 1e9)
        monkeypatch.setattr(cost, "EXTRA_S", 0.0)
        script = tmp_path / "spin.py"
        script.write_text("import torch\nx = torch.ones(8)\nfor _ in range(2000): x = x + 1")
        answer = call(ctx, "aisp_profile_torch", script=str(script))
        spent = answer["cost"]
        assert answer["opening"][0]["text"] == spent["sentence"]
        assert len(spent["recorded_s"]) == len(spent["plain_s"]) == 1
        assert f"took {spent['ratio']:.3g} times as long as without" in spent["sentence"]
        assert spent["ratio"] > 1, "recording 2,000 operators costs more than running them"

    def test_a_failing_script_says_why(self, ctx, tmp_path):
        pytest.importorskip("torch")
        script = tmp_path / "bad.py"
        script.write_text("raise RuntimeError('no such luck')")
        error = execute("aisp_profile_torch", {"script": str(script)}, ctx).error
        assert error.code == "RAISED"
        assert error.hint == "Line 1 of bad.py raised it."

    def test_a_script_that_exits_says_with_which_code(self, ctx, tmp_path):
        pytest.importorskip("torch")
        script = tmp_path / "exits.py"
        script.write_text("print('usage: exits.py FILE')\nraise SystemExit(3)")
        error = execute("aisp_profile_torch", {"script": str(script)}, ctx).error
        assert (error.code, error.message) == ("RAISED", "The script failed: it ended with exit code 3")
        assert error.hint == "Its last output: usage: exits.py FILE"


def test_the_command_line_answers_too(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "aisp_mcp.front.cli.main",
            "profile",
            "kernels",
            "--profile",
            NSYS,
            "--limit",
            "3",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "AISP_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["result"]["kernels"]) == 3


@pytest.mark.anyio
async def test_a_client_gets_the_same_answer_and_a_recording_is_a_job(connect, tmp_path):
    """Over the protocol: reading answers at once, recording is refused before a job is made."""
    async with connect() as client:
        read = await client.call_tool("aisp_profile_kernels", {"profile": NSYS, "limit": 2})
        assert not read.is_error
        rows = read.structured_content["result"]["kernels"]
        assert [row["count"] for row in rows] == [105, 84]
        assert rows[0]["total_ns"] == 3658843  # as `nsys stats` says
        refusal = await client.call_tool("aisp_profile_nsys", {"command": ["/no/such/program"]})
        assert refusal.is_error
        assert refusal.structured_content["error"]["code"] == "NO_PROGRAM"
        answer = await client.call_tool("aisp_profile_memory", {"snapshot": MEMORY, "wait_s": 40})
        assert answer.structured_content["status"] == "ok", answer.structured_content
        assert answer.structured_content["result"]["memory"][0]["peak_bytes"] == 950597832
