"""The right tool for a question, found by what the tools say of themselves."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from suggest_questions import EVERYDAY

from aisp_mcp.assist.guide.suggest import questions
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings

FORUM = yaml.safe_load((Path(__file__).parent / "forum_questions.yaml").read_text())
QUESTIONS = [
    ("is this machine healthy", "aisp_triage"),
    ("something is slow: check GPU driver and disk", "aisp_triage"),
    ("where do I start", "aisp_triage"),
    ("quick status of this machine", "aisp_status"),
    ("how much memory and disk is free", "aisp_status"),
    ("which GPUs do I have", "aisp_gpu_info"),
    ("why are my clocks low, is the GPU throttled", "aisp_gpu_info"),
    ("GPU temperature and power draw", "aisp_gpu_info"),
    ("which process uses the memory of the GPU", "aisp_gpu_info"),
    ("is ECC or MIG enabled", "aisp_gpu_info"),
    ("which version of CUDA is installed", "aisp_system_software"),
    ("torch and triton versions", "aisp_system_software"),
    ("cuDNN or NCCL version", "aisp_system_software"),
    ("what is missing on this machine to profile", "aisp_system_dependencies"),
    ("how do I install what is missing", "aisp_system_dependencies"),
    ("how fast is the disk", "aisp_hw_disk"),
    ("measure disk throughput with fio", "aisp_hw_disk"),
    ("cached against uncached read rate", "aisp_hw_disk"),
    ("run the benchmarks of ch07", "aisp_run_benchmarks"),
    ("is ch07:row_sum optimized really faster than the baseline", "aisp_run_benchmarks"),
    ("measure all optimized files against their baseline", "aisp_run_benchmarks"),
    ("optimise a function over several candidates", "aisp_optimize_start"),
    ("judge my own kernel against the baseline", "aisp_verify_candidate"),
    ("verify my candidate variant", "aisp_verify_candidate"),
    ("which benchmark targets are there", "aisp_benchmark_targets"),
    ("list chapters and labs", "aisp_list_chapters"),
    ("make an HTML report of a run", "aisp_benchmark_export"),
    ("export a run as csv", "aisp_benchmark_export"),
    ("state, progress and output of a job", "aisp_job_status"),
    ("wait for a job to end", "aisp_job_wait"),
    ("cancel a running job", "aisp_job_cancel"),
    ("list all jobs", "aisp_job_list"),
    ("which tool should answer this question", "aisp_suggest_tools"),
]


@pytest.fixture
def shipped(home: Path) -> Context:
    """The shipped catalogue alone: tools for tests would take part in the ranking."""
    settings = dataclasses.replace(Settings.from_env(), tool_modules="")
    dispatch.load_catalog(settings)
    return Context(settings=settings)


@pytest.mark.parametrize(("question", "tool"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_the_right_tool_is_among_the_first_three(shipped: Context, question: str, tool: str) -> None:
    result = dispatch.execute("aisp_suggest_tools", {"query": question}, shipped).result
    reasons = {suggestion["tool"]: suggestion["reason"] for suggestion in result["suggestions"]}
    assert tool in reasons
    assert reasons[tool]


def test_everyday_words_lead_to_a_tool_too(shipped: Context) -> None:
    missed = {}
    for question, tools in EVERYDAY.items():
        result = dispatch.execute("aisp_suggest_tools", {"query": question}, shipped).result
        suggested = [suggestion["tool"].removeprefix("aisp_") for suggestion in result["suggestions"]]
        if not set(suggested) & set(tools.split()):
            missed[question] = suggested
    assert missed == {}


def suggested(ctx: Context, question: str, limit: int) -> set[str]:
    result = dispatch.execute("aisp_suggest_tools", {"query": question, "limit": limit}, ctx).result
    return {suggestion["tool"].removeprefix("aisp_") for suggestion in result["suggestions"]}


@pytest.mark.parametrize(("deck", "most_missed"), [("tuned", 1), ("held_back", 2), ("unseen", 4), ("later", 2)])
def test_questions_of_forums_find_their_tool_among_the_first_two(shipped: Context, deck: str, most_missed: int) -> None:
    missed = [
        question for question, tools in FORUM[deck].items() if not suggested(shipped, question, 2) & {*tools.split()}
    ]
    assert len(missed) <= most_missed, missed


def test_some_questions_have_one_right_tool(shipped: Context) -> None:
    for question, tools in FORUM["first"].items():
        assert suggested(shipped, question, 1) <= {*tools.split()}, question


def test_what_no_tool_answers_finds_nothing_and_says_so(shipped: Context) -> None:
    for question in FORUM["nothing"]:
        result = dispatch.execute("aisp_suggest_tools", {"query": question}, shipped).result
        assert (result["suggestions"], result["hint"][:29]) == ([], "No tool answers this question"), question


def test_the_words_people_use_are_of_tools_that_exist_and_each_tool_has_some(shipped: Context) -> None:
    from aisp_mcp.server import registry

    assert set(questions()) == {tool.name for tool in registry.tools() if tool.fn.__module__.startswith("aisp_mcp")}


def test_ready_arguments_are_those_the_question_states(shipped: Context) -> None:
    result = dispatch.execute(
        "aisp_suggest_tools", {"query": "measure ch07:row_sum and ch15 benchmarks"}, shipped
    ).result
    run = next(s for s in result["suggestions"] if s["tool"] == "aisp_run_benchmarks")
    assert (run["args"]["targets"], run["missing"]) == (["ch07:row_sum", "ch15"], [])
    result = dispatch.execute("aisp_suggest_tools", {"query": "verify my candidate", "limit": 1}, shipped).result
    [verify] = result["suggestions"]
    assert (verify["args"], verify["missing"]) == ({}, ["target", "candidate"])


def test_a_suggested_call_with_nothing_missing_is_valid(shipped: Context) -> None:
    from aisp_mcp.server import registry

    for question, _ in QUESTIONS:
        for suggestion in dispatch.execute("aisp_suggest_tools", {"query": question}, shipped).result["suggestions"]:
            if not suggestion["missing"]:
                dispatch.validate(registry.get(suggestion["tool"]), suggestion["args"])


@pytest.mark.parametrize("query", ["zzzz", "the of and", '"; DROP TABLE tools; --', "NEAR(a b) OR *", "名前"])
def test_a_question_no_word_of_which_is_known_is_answered_with_a_hint(shipped: Context, query: str) -> None:
    result = dispatch.execute("aisp_suggest_tools", {"query": query}, shipped).result
    if not result["suggestions"]:
        assert "GPU" in result["hint"]


@pytest.mark.parametrize(("question", "tool"), [("run nsys", "aisp_profile_nsys"), ("run ncu", "aisp_profile_ncu")])
def test_a_program_named_to_be_run_is_the_first_suggestion(shipped: Context, question: str, tool: str) -> None:
    result = dispatch.execute("aisp_suggest_tools", {"query": question}, shipped).result
    assert result["suggestions"][0]["tool"] == tool


def test_without_a_gpu_a_slow_kernel_is_no_reason_for_ncu(shipped: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    from aisp_mcp.system.gpu import nvml

    matches = {}
    for gpus in ([], ["GPU-1"]):
        monkeypatch.setattr(nvml, "gpu_uuids", lambda gpus=gpus: gpus)
        result = dispatch.execute("aisp_suggest_tools", {"query": "my kernel is slow"}, shipped).result
        matches[len(gpus)] = [suggestion["tool"] for suggestion in result["suggestions"]]
    assert "aisp_profile_ncu" not in matches[0]
    assert "aisp_profile_ncu" in matches[1]
