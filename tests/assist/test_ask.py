"""aisp_ask and aisp_explain: right sources, cited sentences, and a language model that lies, stalls or babbles."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from analyze_runs import pair, run_of
from stub_servers import Served, send, serving

from aisp_mcp.assist.ask import figures
from aisp_mcp.assist.ask.pages import concepts
from aisp_mcp.assist.ask.retrieval import METHODOLOGY
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.verdict_row import RunKind
from aisp_mcp.system import llm

QUESTIONS = yaml.safe_load((Path(__file__).parent / "fifty_questions.yaml").read_text("utf-8"))
FORUM = yaml.safe_load((Path(__file__).parent / "forum_questions.yaml").read_text("utf-8"))
QUESTION = "What is the ridge point of a roofline?"
TRUE = {"text": "The ridge point is the intensity where both ceilings are equal.", "cites": [1]}


@pytest.fixture
def ctx(home: Path) -> Context:
    settings = dataclasses.replace(Settings.from_env(), tool_modules="")
    load_catalog(settings)
    return Context(settings)


def call(tool: str, ctx: Context, **args: Any) -> dict[str, Any]:
    return execute(tool, args, ctx).model_dump(mode="json")


def test_fifty_questions_find_their_source_among_the_first_three(ctx: Context) -> None:
    missed = []
    for row in QUESTIONS:
        passages = call("aisp_ask", ctx, question=row["ask"])["result"]["passages"]
        if not {passage["source"].partition("#")[0] for passage in passages} & set(row["sources"]):
            missed.append(row["ask"])
    assert len(QUESTIONS) == 50
    assert len(missed) <= 5, missed


def test_forty_questions_of_forums_open_with_the_right_source_or_with_none(ctx: Context) -> None:
    missed = []
    for row in FORUM:
        result = call("aisp_ask", ctx, question=row["ask"])["result"]
        first = result["passages"][0]["source"].partition("#")[0] if result["passages"] else None
        if first not in (row["sources"] or [None]) or bool(result["answer"]) != bool(first):
            missed.append(row["ask"])
    assert len(FORUM) == 40
    assert len(missed) <= 3, missed


def test_numbers_come_from_a_planner(ctx: Context) -> None:
    result = call("aisp_ask", ctx, question="tokens per second of two H100 for a 70B model")["result"]
    planned = call("aisp_fit", ctx, model="llama-3.1-70b", gpu="H100", gpus=2)["result"]["answer"]["headline"]
    assert result["answer"][0]["text"] == f"A model of 70B is planned as llama-3.1-70b. {planned}"
    assert result["passages"][0]["source"] == "aisp_fit"


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("how much memory does a 7B model need for full fine tuning with Adam", "GiB per GPU"),
        ("can I train a 70B model on two A100", "layouts needs"),
        ("does fp8 lose accuracy", "reached the accuracy of 16-bit training"),
        ("why is the first call of a compiled function slow", "compile kernels"),
    ],
)
def test_an_answer_opens_with_what_was_asked(ctx: Context, question: str, words: str) -> None:
    answer = call("aisp_ask", ctx, question=question)["result"]["answer"]
    assert words in " ".join(sentence["text"] for sentence in answer)


def test_each_size_that_is_planned_is_of_a_listed_model(ctx: Context) -> None:
    for model in figures.OF_SIZE.values():
        assert call("aisp_fit", ctx, model=model, gpu="H200", gpus=8)["status"] == "ok", model


def test_pages_name_only_tools_that_exist_and_are_complete(ctx: Context) -> None:
    known = set(registry.names())
    for page in concepts().values():
        assert set(page.tools) <= known, page.name
        assert {"Measure it here", "What helps"} <= set(page.sections), page.name


def test_an_answer_without_a_model_is_short_and_says_so(ctx: Context) -> None:
    answer = call("aisp_ask", ctx, question=QUESTION)
    sentences = answer["result"]["answer"]
    assert 1 <= len(sentences) <= 2
    for sentence in sentences:
        assert (sentence["cites"], answer["result"]["answered_by"]) == ([1], "passages")
        assert sentence["text"] in answer["result"]["passages"][0]["text"]
    assert answer["result"]["passages"][0]["source"] == "roofline"
    assert len(json.dumps(answer)) < 6000  # about 1,500 tokens


def test_words_that_stand_nowhere_give_no_passage(ctx: Context) -> None:
    answer = call("aisp_ask", ctx, question="qwertzuiop asdfghjkl")["result"]
    assert answer["passages"] == []
    assert answer["note"]


def test_a_term_is_explained_by_any_of_its_names(ctx: Context) -> None:
    for term in ("bank conflicts", "Bank Conflict", "shared memory bank conflicts", "swizzle"):
        assert call("aisp_explain", ctx, concept=term)["result"]["concept"] == "bank-conflicts"
    row_sum = call("aisp_explain", ctx, concept="coalesced access")["result"]
    assert "ch07:row_sum" in row_sum["benchmarks"]
    assert "aisp_analyze_memory_patterns" in row_sum["tools"]


def test_an_unknown_term_leads_to_the_nearest(ctx: Context) -> None:
    error = call("aisp_explain", ctx, concept="memory wall of caches")["error"]
    assert error["code"] == "UNKNOWN_CONCEPT"
    assert error["next_steps"][0]["args"]["query"] in concepts()


Model = Callable[[str], AbstractContextManager[Served]]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A language model server whose every reply is the given text."""

    @contextmanager
    def start(reply: str) -> Iterator[Served]:
        answer = {"choices": [{"message": {"content": reply}}]}
        with serving(lambda request, _: send(request, answer)) as served:
            monkeypatch.setenv("AISP_LLM_URL", f"{served.url}/v1")
            monkeypatch.setenv("AISP_LLM_MODEL", "stub")
            monkeypatch.setenv("AISP_LLM_KEY", "local-secret-key")
            yield served

    return start


def test_a_cited_sentence_is_returned_with_its_source(ctx: Context, model: Model) -> None:
    with model(json.dumps({"sentences": [TRUE]})) as served:
        answer = call("aisp_ask", ctx, question=QUESTION)
    assert answer["result"]["answer"] == [TRUE]
    assert answer["result"]["answered_by"] == "stub"
    method, path, headers, body = served.seen[0]
    assert (method, path) == ("POST", "/v1/chat/completions")
    assert headers["Authorization"] == "Bearer local-secret-key"
    assert "[1] Roofline model" in body["messages"][1]["content"]
    assert "local-secret-key" not in json.dumps(answer)


@pytest.mark.parametrize(
    "lie",
    [
        {"text": "The ridge point is the intensity where both ceilings are equal.", "cites": []},
        {"text": "The ridge point is the intensity where both ceilings are equal.", "cites": [9]},
        {"text": "The ridge point of an H100 is 591 FLOP per byte.", "cites": [1]},
        {"text": "Buy faster servers because vendors recommend upgrading quarterly.", "cites": [1]},
    ],
    ids=["uncited", "unknown passage", "invented number", "unrelated words"],
)
def test_a_lying_model_is_dropped_sentence_by_sentence(ctx: Context, model: Model, lie: dict[str, Any]) -> None:
    with model("Sure! ```json\n" + json.dumps({"sentences": [TRUE, lie]}) + "\n```"):
        mixed = call("aisp_ask", ctx, question=QUESTION)["result"]
    assert (mixed["answer"], mixed["dropped"]) == ([TRUE], 1)
    with model(json.dumps({"sentences": [lie]})):
        alone = call("aisp_ask", ctx, question=QUESTION)["result"]
    assert (alone["answer"], alone["dropped"]) == (None, 1)
    assert alone["passages"]


@pytest.mark.parametrize(
    "reply", ["The ridge point is 12.", "{}", '{"sentences": [{"text": 3}]}', '{"sentences": "x"}']
)
def test_a_reply_in_another_form_is_left_out(ctx: Context, model: Model, reply: str) -> None:
    with model(reply):
        answer = call("aisp_ask", ctx, question=QUESTION)["result"]
    assert answer["answered_by"] == "passages"
    assert "malformed" in answer["note"]


def test_a_hanging_model_costs_its_deadline_and_no_passage(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(llm, "CHAT_DEADLINE_S", 0.3)
    monkeypatch.setattr(llm, "_LANE", llm.CallLane("llm-test"))
    with serving(lambda *_: release.wait(20) and None) as served:
        monkeypatch.setenv("AISP_LLM_URL", served.url)
        answer = call("aisp_ask", ctx, question=QUESTION)["result"]
        release.set()
    assert "No answer within 0.3 s" in answer["note"]
    assert answer["passages"]


def test_other_protocols_are_spoken(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = json.dumps({"sentences": [TRUE]})
    answers = {
        "anthropic": ("/messages", {"content": [{"type": "text", "text": reply}]}, "X-Api-Key"),
        "ollama": ("/api/chat", {"message": {"content": reply}}, "Authorization"),
    }
    for api, (path, document, header) in answers.items():
        with serving(lambda request, _, document=document: send(request, document)) as served:
            for name, value in {"URL": served.url, "API": api, "MODEL": "stub", "KEY": "k"}.items():
                monkeypatch.setenv(f"AISP_LLM_{name}", value)
            assert call("aisp_ask", ctx, question=QUESTION)["result"]["answer"] == [TRUE]
        assert served.seen[0][1] == path
        assert header in {name.title() for name in served.seen[0][2]}


def test_a_question_about_own_runs_is_answered_from_them(ctx: Context) -> None:
    for question in ("What was the verdict of my last run?", "Which of my runs was slower?"):
        empty = call("aisp_ask", ctx, question=question)["result"]
        assert (empty["passages"], "No run is stored" in empty["note"]) == ([], True)
    ctx.store.save_run(run_of(pair(target="ch07:row_sum"), pair(target="ch05:layer_norm")), None)
    named = call("aisp_ask", ctx, question="What did my last run of row_sum show?")["result"]["passages"]
    assert named[0]["source"] == "r_1/ch07:row_sum"
    for question in (
        "What was the verdict of my last run?",
        "What did I measure so far?",
        "was ch07:row_sum made faster",
    ):
        passages = call("aisp_ask", ctx, question=question)["result"]["passages"]
        assert {passage["kind"] for passage in passages} == {"run"}
    other = call("aisp_ask", ctx, question="My CUDA graph replays a wrong result, why?")["result"]["passages"]
    assert other[0]["source"] == "cuda-graph-traps"


def test_hints_and_gates_are_no_evidence_but_are_told_when_asked_for(ctx: Context) -> None:
    one = run_of(pair(target="ch07:row_sum"))
    hint = one.comparisons[0].model_copy(update={"replicates": 1})
    commits = {"commits": {"base": "b" * 40, "head": "c" * 40}}
    ctx.store.save_run(one.model_copy(update={"id": "r_q", "preset": "quick", "comparisons": [hint]}), None)
    gate = {"id": "r_g", "kind": RunKind.GATE, "environment": {**one.environment, **commits}}
    ctx.store.save_run(one.model_copy(update=gate), None)
    cited = call("aisp_ask", ctx, question="Is row_sum ch07 faster with tiles?")["result"]["passages"]
    assert "run" not in {passage["kind"] for passage in cited}
    told = call("aisp_ask", ctx, question="What did my last run of row_sum show?")["result"]["passages"]
    texts = {passage["source"].partition("/")[0]: passage["text"] for passage in told}
    assert texts["r_q"].startswith("Provisional, one replicate: ")
    assert texts["r_g"].startswith("Commit bbbbbbbbbb to cccccccccc: ")


@pytest.mark.parametrize(
    "question",
    ["How do I measure a kernel properly?", "How many runs do I need?", "How should I benchmark code?"],
)
def test_a_question_how_to_measure_leads_to_methodology(ctx: Context, question: str) -> None:
    assert call("aisp_ask", ctx, question=question)["result"]["passages"][0]["source"] in METHODOLOGY


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("TMA", "tma"),
        ("NVLS", "nvlink-sharp"),
        ("cold cache", "cold-caches"),
        ("lock clocks", "clocks"),
        ("CUDA graph traps", "cuda-graph-traps"),
    ],
)
def test_newer_pages_are_found_by_their_names(ctx: Context, term: str, page: str) -> None:
    assert call("aisp_explain", ctx, concept=term)["result"]["concept"] == page
