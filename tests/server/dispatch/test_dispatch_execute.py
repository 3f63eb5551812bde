"""From a call to an envelope."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aisp_mcp.envelope import Envelope, Status
from aisp_mcp.errors import AispError
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import plain
from aisp_mcp.server.dispatch.pending import JobPending
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.job import Job, JobState


def test_numbers_that_are_not_finite_become_null_and_are_named(ctx: Context) -> None:
    envelope = dispatch.execute("aisp_demo_numbers", {}, ctx)
    data = json.loads(dispatch.to_json(envelope))
    assert data["result"] == {"good": 1.5, "ratio": None, "series": [1.0, None, None], "nothing": None}
    assert data["nonfinite"] == ["ratio", "series[1]", "series[2]"]


def test_many_nonfinite_numbers_are_counted_not_listed() -> None:
    data, paths = plain({"x": [float("nan")] * 1000})
    assert data == {"x": [None] * 1000}
    assert len(paths) == 21
    assert paths[-1] == "and 980 more"


def test_a_file_name_that_is_not_utf8_can_be_sent() -> None:
    data, _ = plain({"path": "caf\udce9.txt", "\udcff": 1})
    assert json.dumps(data, ensure_ascii=False).encode()


def test_an_envelope_is_compact_and_carries_no_empty_parts(ctx: Context) -> None:
    text = dispatch.to_json(dispatch.execute("aisp_demo_echo", {"count": 1}, ctx))
    data = json.loads(text)
    assert set(data) == {"tool", "status", "result", "meta"}
    assert text == json.dumps(data, separators=(",", ":"))


def test_an_error_keeps_code_hint_and_next_steps(ctx: Context) -> None:
    data = dispatch.to_data(dispatch.execute("aisp_demo_refuse", {}, ctx))
    assert data["status"] == "error"
    assert data["error"] == {
        "code": "NO_GPU",
        "message": "There is no GPU.",
        "hint": "Put one in.",
        "next_steps": [{"tool": "aisp_demo_echo", "args": {"count": 1}}, {"tool": "aisp_demo_numbers"}],
    }


def test_a_bug_is_filed_in_the_log_and_only_its_number_is_told(ctx: Context, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="aisp"):
        envelope = dispatch.execute("aisp_demo_boom", {}, ctx)
    text = dispatch.to_json(envelope)
    assert envelope.error is not None
    assert envelope.error.code == "INTERNAL"
    assert "secret detail" not in text
    [record] = caplog.records
    assert str(record.args[0]) in envelope.error.message  # type: ignore[index]
    assert record.exc_info is not None
    assert "secret detail" in str(record.exc_info[1])


def test_an_alias_answers_under_the_tools_own_name(ctx: Context) -> None:
    assert dispatch.execute("aisp_demo_repeat", {"count": 1}, ctx).tool == "aisp_demo_echo"


def test_an_unknown_tool_is_an_answer_too(ctx: Context) -> None:
    envelope = dispatch.execute("aisp_demo_eco" + "x" * 10_000, {}, ctx)
    assert envelope.error is not None
    assert envelope.error.code == "UNKNOWN_TOOL"
    assert len(dispatch.to_json(envelope)) < 1000
    near = dispatch.execute("aisp_demo_eco", {}, ctx)
    assert near.error is not None
    assert near.error.hint == "Did you mean 'aisp_demo_echo'?"


def test_a_job_tool_runs_here_when_executed(ctx: Context) -> None:
    envelope = dispatch.execute("aisp_demo_count", {"steps": 2}, ctx)
    assert envelope.result == {"steps": 2, "job": False}


def test_a_dry_run_says_what_would_run_and_runs_nothing(ctx: Context) -> None:
    envelope = dispatch.start("aisp_demo_count", {"steps": 2, "dry_run": True, "timeout_s": 7.0}, ctx)
    assert isinstance(envelope, Envelope)
    assert envelope.result["argv"][1:] == ["-P", "-m", "aisp_mcp.server.worker", "aisp_demo_count"]
    assert envelope.result["timeout_s"] == 7.0
    assert envelope.result["details"] == {"steps": 2}
    assert not (ctx.settings.home / "aisp.db").exists()


def test_a_call_that_cannot_work_is_refused_before_a_job_is_made(ctx: Context) -> None:
    envelope = dispatch.start("aisp_demo_count", {"steps": 13}, ctx)
    assert isinstance(envelope, Envelope)
    assert envelope.status is Status.ERROR
    assert envelope.error is not None
    assert envelope.error.code == "UNLUCKY"


@pytest.mark.parametrize("text", ["no_such_module_here", "broken_tools", "untyped_tools"])
def test_a_users_module_that_cannot_be_loaded_is_named(
    text: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tools.py").write_text("raise ValueError('broken on purpose')")
    (tmp_path / "untyped_tools.py").write_text(
        "from aisp_mcp.server.registry import MS, READS, tool\n"
        "@tool(cli='bad one', effect=READS, cost=MS)\n"
        "def aisp_bad_one(p: 'NoSuchName', ctx) -> None:\n"
        "    'Annotated with a name that does not exist.'\n"
    )
    monkeypatch.setattr(registry, "_TOOLS", dict(registry._TOOLS))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AISP_TOOL_MODULES", text)
    with pytest.raises(AispError, match=text) as caught:
        dispatch.load_catalog(Settings.from_env())
    assert caught.value.code == "TOOL_MODULE"


def test_every_shipped_tool_keeps_its_promises() -> None:
    """Facts that fronts rely on, checked for whatever is in the catalogue."""
    dispatch.load_catalog(Settings.from_env({}))
    for tool in registry.tools():
        assert 1 <= len(tool.summary) <= 120, tool.name
        assert len(tool.cli.split()) >= 1
        assert tool.params.model_fields is not None
        assert tool.result.model_fields is not None
        if tool.job is not None:
            assert issubclass(tool.params, registry.JobParams), tool.name


def test_what_the_system_refuses_is_not_a_bug(ctx: Context) -> None:
    answer = dispatch.execute("aisp_benchmark_targets", {"bench_root": "x" * 5000}, ctx)
    assert answer.error is not None
    assert answer.error.code == "FILE_REFUSED"


@pytest.mark.parametrize(
    ("position", "said"), [(2, "queued: 2 jobs are ahead"), (1, "queued: one job is ahead"), (0, None)]
)
def test_a_queued_job_says_how_many_are_ahead(position: int, said: str | None) -> None:
    job = Job(
        id="j_1", tool="aisp_triage", params={}, state=JobState.QUEUED, timeout_s=1, created_at=0, position=position,
        run_dir="/",
    )  # fmt: skip
    waits = JobPending(cast(Context, SimpleNamespace(jobs=SimpleNamespace(get=lambda _: job))), "j_1", 20.0)
    assert waits.poll() is None
    progress = waits.progress()
    assert (progress.message if progress else None) == said
