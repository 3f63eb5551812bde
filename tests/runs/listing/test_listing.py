"""Runs by name, tag and place, through the tools that take a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from export_runs import comparison

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    context = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    load_catalog(context.settings)
    for number in range(3):
        run = Run(id=f"r_{number}", created_at=number, preset="quick", profile="portable", environment={})
        context.store.save_run(run, None)
    return context


def ask(ctx: Context, tool: str, **args: Any) -> Any:
    answer = execute(tool, args, ctx)
    return answer.result if answer.error is None else answer.error.code


def ids(page: Any) -> list[str]:
    return [row["run_id"] for row in page["runs"]]


def test_runs_are_listed_in_pages(ctx: Context) -> None:
    page = ask(ctx, "aisp_benchmark_runs", limit=2)
    assert ids(page) == ["r_2", "r_1"]
    assert ids(ask(ctx, "aisp_benchmark_runs", cursor=page["next_cursor"])) == ["r_0"]
    assert page["sentence"] == "2 runs, newest first; older ones follow."
    assert ask(ctx, "aisp_benchmark_runs", tag="none")["sentence"] == "No stored run matches."
    assert ask(ctx, "aisp_benchmark_runs", cursor="x") == "BAD_CURSOR"


def test_an_empty_store_says_what_stores_a_run(tmp_path: Path) -> None:
    context = Context(settings=Settings(home=tmp_path, bench_roots=(tmp_path,)))
    load_catalog(context.settings)
    assert "aisp bench run" in ask(context, "aisp_benchmark_runs")["sentence"]
    assert execute("aisp_benchmark_triage", {}, context).error.message == "No run is stored yet."  # type: ignore[union-attr]


def test_names_and_tags_stay_with_a_run(ctx: Context) -> None:
    assert (
        ask(ctx, "aisp_benchmark_label", run_id="last~1", name="before", tag=["a", "b"], note="why")["run_id"] == "r_1"
    )
    assert ask(ctx, "aisp_benchmark_label", run_id="before", tag=["a", "c"])["tags"] == ["a", "b", "c"]
    assert ids(ask(ctx, "aisp_benchmark_runs", tag="c")) == ["r_1"]
    assert ids(ask(ctx, "aisp_benchmark_runs", query="WHY")) == ["r_1"]
    assert ask(ctx, "aisp_benchmark_label", run_id="before", name="last") == "BAD_NAME"
    assert ask(ctx, "aisp_benchmark_label", run_id="last~9", note="a") == "UNKNOWN_RUN"


@pytest.mark.parametrize("name", ["run_id", "run"])
def test_a_run_by_its_place_and_under_the_arguments_former_name(ctx: Context, name: str) -> None:
    written = ask(ctx, "aisp_benchmark_export", **{name: "last"}, format="json")
    assert Path(written["files"][0]["path"]).parent.name == "r_2"


def test_a_gates_further_looks_are_not_the_last_run(ctx: Context) -> None:
    facts = {"created_at": 9.0, "preset": "default", "profile": "portable", "kind": RunKind.GATE}
    commits = {"commits": {"base": "b" * 40, "head": "c" * 40}}
    ctx.store.save_run(Run(id="j_gate", environment=commits, **facts), "j_gate")
    look = comparison("ch01:a", 0.9, Verdict.SLOWER).model_copy(update={"log_path": "runs/j_gate/look-2/a.jsonl"})
    ctx.store.save_run(Run(id="r_look", environment=commits, comparisons=[look], **facts), None)
    assert ask(ctx, "aisp_benchmark_label", run_id="last", note="a gate")["run_id"] == "j_gate"
    assert ask(ctx, "aisp_benchmark_label", run_id="last") == "NO_LABEL"
    rows = ask(ctx, "aisp_benchmark_runs", kind="gate")["runs"]
    assert [(row["run_id"], row["targets"][:24]) for row in rows][-1] == ("j_gate", "bbbbbbbbbb..cccccccccccc")


def test_a_job_says_what_it_works_on() -> None:
    facts: dict[str, Any] = {"id": "j", "state": JobState.QUEUED, "timeout_s": 1, "created_at": 0, "run_dir": "/"}
    run = Job(tool="aisp_run_benchmarks", params={"targets": ["ch01", "ch02"], "preset": "quick"}, **facts)
    assert run.subject == "ch01 ch02"
    texts = Job(tool="aisp_verify_candidate", params={"target": "a\nb", "candidate": "c.py"}, **facts)
    assert texts.subject == "(source text) c.py"
    assert Job(tool="aisp_serve_bench", params={"url": "http://a"}, **facts).subject == "http://a"
