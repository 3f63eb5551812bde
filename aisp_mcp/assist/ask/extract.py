"""The sentences of passages that answer a question best, without a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from aisp_mcp.assist.ask import figures, retrieval
from aisp_mcp.assist.ask.pages import concepts
from aisp_mcp.assist.ask.records import Passage, Sentence
from aisp_mcp.assist.guide.suggest import subject_words

# The section that answers a question, by its words; other questions are answered by the definition.
_SECTIONS = (
    ("Measure it here", re.compile(
        r"\bhow\b.{0,40}\b(measure|benchmark|time|see|know|check|find|tell|detect|profile|compare)\b"
        r"|\bwhich (tool|command)\b|\bwhy\b.{0,60}\b(my|our)\b.{0,60}\b(slow\w*|long)\b", re.IGNORECASE)),
    ("What helps", re.compile(
        r"\b(fix|reduce|avoid|improve|prevent|speed up|help|optimi[sz]e|tune|hide|lower|faster|should i|best|"
        r"how (do|can|to)|increase|get rid)\b", re.IGNORECASE)),
)  # fmt: skip


def opening(question: str, passages: Sequence[Passage]) -> list[Sentence]:
    """One or two sentences of the best passage, from the section that answers such questions."""
    first = passages[0]
    concept = concepts().get(first.source) if first.kind == "concept" else None
    if first.source in figures.TOOLS:
        return [Sentence(text=first.text, cites=[first.number])]
    if concept is None:
        return [Sentence(text=_best(question, first.text), cites=[first.number])]
    section = next((name for name, asked in _SECTIONS if asked.search(question)), "")
    texts = _beginning(question, concept.sections.get(section) or concept.definition)
    return [Sentence(text=text, cites=[first.number]) for text in texts]


def _best(question: str, text: str) -> str:
    """The sentence with most of the question's subject; the first of equals."""
    sentences = list(_sentences(text))
    weights = retrieval.rarity(subject_words(question))
    return max(
        sentences, key=lambda sentence: sum(w for word, w in weights.items() if retrieval.contains(sentence, word))
    )


def _beginning(question: str, body: str) -> list[str]:
    """The text's first sentence, and the one that says most of what was asked."""
    return list(dict.fromkeys([next(_sentences(body)), _best(question, body)]))


def _sentences(text: str) -> Iterator[str]:
    """Its sentences outside of tables, code and headings; all of it if it has none."""
    prose = " ".join(
        line
        for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
        if line.strip() and not line.startswith(("|", "#", "    ", "- "))
    )
    prose = re.sub(r"(^|(?<=\s))\d+\. (?=[A-Z`])", "", prose)  # numbers of a list
    found = [part for part in re.split(r"(?<=[.?!])\s+(?=[A-Z`])", prose) if part]
    yield from found or [" ".join(text.split())[:300]]
