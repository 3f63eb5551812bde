"""Answers to questions and explanations of terms."""

from __future__ import annotations

import re

from pydantic import ValidationError

from aisp_mcp.assist.ask import citing, intents, retrieval
from aisp_mcp.assist.ask.concepts import Concept, concepts
from aisp_mcp.assist.ask.records import Answer, Explanation, Passage
from aisp_mcp.assist.guide.suggest import subject_words
from aisp_mcp.errors import AispError, NotFound, Unavailable
from aisp_mcp.server.context import Context
from aisp_mcp.settings import LlmSettings
from aisp_mcp.suites import discovery
from aisp_mcp.suites.records import Target
from aisp_mcp.system import llm

MAX_BENCHMARKS, MAX_RUNS, MAX_RELATED = 6, 3, 5
NO_RUNS = "No run is stored on this machine: measure one with aisp bench run --targets TARGET, then ask again."
NO_LLM = "No language model is configured (AISP_LLM_URL): read the passages."


def answer(question: str, ctx: Context, limit: int, use_llm: bool) -> Answer:
    """Passages and, if a language model is configured and requested, sentences that their citations support."""
    passages = retrieval.search(question, ctx, limit)
    if not passages and intents.about_own_results(question):
        return Answer(passages=[], note=NO_RUNS)
    if not passages:
        return Answer(passages=[], note="No source contains a word of the question. Name a subject, such as KV cache.")
    settings = LlmSettings.from_env()
    if not (use_llm and settings.url):
        return Answer(passages=passages, note=NO_LLM if use_llm else None)
    try:
        reply = llm.chat(settings, citing.INSTRUCTIONS, citing.prompt(question, passages))
        sentences, dropped = citing.checked(reply, passages)
    except Unavailable as error:
        return Answer(passages=passages, note=f"The language model did not answer: {error.message} Read the passages.")
    except (ValueError, ValidationError):
        return Answer(passages=passages, note="The language model's reply was malformed, so it was dropped.")
    if not sentences:
        note = (
            "The passages support none of the language model's sentences."
            if dropped
            else "The language model found no answer in the passages."
        )
        return Answer(passages=passages, dropped=dropped, note=note)
    return Answer(answer=sentences, answered_by=settings.model or settings.api, dropped=dropped, passages=passages)


def explain(term: str, ctx: Context) -> Explanation:
    """The page of a term. Raises NotFound UNKNOWN_CONCEPT with the nearest pages."""
    page = _page(term, ctx)
    here = retrieval.about_runs(" ".join([page.title, *page.keywords]), ctx, MAX_RUNS)
    return Explanation(
        concept=page.name,
        title=page.title,
        definition=page.definition,
        measure_here=page.sections.get("Measure it here", ""),
        helps=page.sections.get("What helps", ""),
        pitfalls=page.sections.get("Pitfalls", ""),
        sources=page.sources,
        tools=page.tools,
        benchmarks=_benchmarks(page, ctx),
        here=here,
        see_also=_related(page, ctx),
    )


def _page(term: str, ctx: Context) -> Concept:
    plain_term = _plain(term)
    for page in concepts().values():
        if plain_term in (_plain(page.name), _plain(page.title)) or plain_term in map(_plain, page.keywords):
            return page
    near = [passage.source for passage in retrieval.search(term, ctx, 20) if passage.kind == "concept"][:3]
    words = set(map(_plain, subject_words(term)))
    for name in near[:1]:
        page = concepts()[name]
        if words and words <= set(_plain(" ".join([page.title, *page.keywords])).split()):
            return page
    steps = [("aisp_explain", {"query": name}) for name in near] or [("aisp_ask", {"query": f"What is {term}?"})]
    hint = f"Nearest: {', '.join(near)}." if near else "aisp_ask searches all sources."
    raise NotFound("UNKNOWN_CONCEPT", f"No page explains '{term}'.", hint, steps)


def _plain(text: str) -> str:
    """Lower case, words without plural endings, single blanks, for comparing terms."""
    words = re.findall(r"[a-z0-9+.]+", text.lower())
    return " ".join(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words
    )


def _benchmarks(page: Concept, ctx: Context) -> list[str]:
    """Targets that the page names, then those whose descriptions contain a keyword of the page."""
    try:
        targets = discovery.find_targets(ctx.settings.bench_roots)
    except AispError:
        return []
    keys = {_plain(word) for word in (page.title, *page.keywords)}
    named = [target.name for target in targets if target.name in page.text]
    others = [target.name for target in targets if target.name not in named and _shares(target, keys)]
    return [*named, *others][:MAX_BENCHMARKS]


def _shares(target: Target, keys: set[str]) -> bool:
    text = f" {_plain(' '.join([target.name, target.summary, *(variant.summary for variant in target.variants)]))} "
    return any(f" {key} " in text for key in keys if key)


def _related(page: Concept, ctx: Context) -> list[str]:
    """Other concepts that the page's own words refer to."""
    passages: list[Passage] = retrieval.search(" ".join([page.title, *page.keywords]), ctx, 30)
    return [passage.source for passage in passages if passage.kind == "concept" and passage.source != page.name][
        :MAX_RELATED
    ]
