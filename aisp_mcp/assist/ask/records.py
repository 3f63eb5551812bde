"""Passages, cited answers and explanations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

Kind = Literal["concept", "page", "tool", "run"]


class Passage(Record):
    """One citable piece of text. number: used in citations, from 1."""

    number: int
    kind: Kind
    source: str = Field(description="A page's name, a tool's name, or a run's id.")
    title: str
    text: str


class Sentence(Record):
    """One sentence of an answer; cites: numbers of passages."""

    text: str
    cites: list[int]


class Answer(Record):
    """Passages that match a question and, if a language model answered, sentences that cite them.

    dropped: sentences of the model that their citations did not support.
    """

    answer: list[Sentence] | None = None
    answered_by: str | None = None
    dropped: int = 0
    passages: list[Passage]
    note: str | None = None


class Explanation(Record):
    """Meaning of a term, how to measure it here, and further reading or calls."""

    concept: str
    title: str
    definition: str
    measure_here: str
    helps: str
    pitfalls: str
    sources: str
    tools: list[str]
    benchmarks: list[str] = Field(description="Targets whose descriptions share the term.")
    here: list[Passage] = Field(description="Results about it that are stored on this machine.")
    see_also: list[str] = Field(description="Other concepts by name.")
