"""Search for the tool that answers a question: full text of descriptions and of known questions."""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from aisp_mcp.machine.datasheets.load import document
from aisp_mcp.server import registry
from aisp_mcp.server.registry import Effect, Tool
from aisp_mcp.system.gpu import nvml

# Column, weight in the ranking, and its name in a reason.
COLUMNS = (
    ("name", 10.0, "name"),
    ("command", 6.0, "command"),
    ("summary", 6.0, "description"),
    ("asked", 5.0, "asked with"),
    ("doc", 2.0, "documentation"),
    ("params", 2.0, "arguments"),
    ("result", 1.0, "result"),
    ("next", 0.3, "next steps"),
)
# Words without meaning for the search; here, every question is about this machine.
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        """a about an and any are as at be been but by can could did do does for from get give had has have how i if in
        is it its just like make me much my no not of on or our please should show so some tell than that the their
        them then there these they this to us use using want was we were what when where which who why will with
        would you your here machine computer many should really quite am after gets got""",
    )
)
# Nouns of almost every question: they say little about what it asks.
_EVERYWHERE = frozenset(re.findall(r"\w+", "model models gpu gpus training train cuda pytorch torch llm run code"))
LITTLE = 0.3
# A tool is suggested if its name, command, description and known questions contain this share of the question's
# subject. The share also ranks, with this exponent.
LEAST_SHARE, SHARED = 0.15, 0.5
_OWN = "{{name command summary asked}} : ({})"
# How well a model learns is no tool's subject, unless its speed or memory is asked about as well.
_LEARNING = re.compile(
    r"\b(loss(es)?(?! scal)|accuracy|nan|(over|under)fit\w*|converge\w*|learning rate|grad(ient)?[ _]norms?|perplexity|"
    r"training curves?|validation)\b",
    re.I,
)
_COST = re.compile(
    r"\b(slow\w*|fast\w*|speed\w*|tim(e|es|ing)|takes?|seconds?|hours?|days?|memory|oom|latency|throughput|quanti[sz]\w*|"
    r"fp\d+|int\d+|profil\w*|benchmark\w*|baseline|tolerance)\b",
    re.I,
)
GPU_NAME = re.compile(
    r"\b(([rg]tx|tesla)[ -]?)?([abhltv]\d{2,3}s?|[lt]4s?|mi\d{3}x?|gb\d{3}|[1-5]0[5-9]0)([ -]?(ti|super))?\b",
    re.IGNORECASE,
)
# Sizes of models and names of GPUs count as those words; bare numbers do not count.
_NAMES = (
    (re.compile(r"(?<=[a-z])(?=[A-Z][a-z])"), " "),  # cudaLaunchKernel
    (re.compile(r"\bch\d\d?(:\w+)?\b"), " benchmark "),
    (re.compile(r"(?<![\w.])[\w.-]*?\d+(\.\d+)?b(?!\w)", re.IGNORECASE), " model "),
    (GPU_NAME, " GPU "),
    (re.compile(r"(?<![\w.])\d[\d.,]*(?!\w)"), " "),
)
LEADS_HERE = 0.03
# Words at the beginning that ask to start something; weights for that, for a program that the question
# names, and for a profiler without a GPU to profile here.
_ACTIONS = frozenset(["run", "record", "capture", "start", "launch", "execute", "measure", "profile"])
_PROGRAMS = frozenset({"nsys", "ncu"})
STARTS, NAMED, LACKING, DEFINES = 1.5, 2.5, 0.5, 2.5
_MEANING = re.compile(r"\bwhat\b.*\bmeans?\b|\bmeaning of\b|\bdefin(e|ition)\b", re.IGNORECASE)
_OPEN, _CLOSE = "\x02", "\x03"


class Match(NamedTuple):
    """One matching tool. args: those that the question states; missing: required arguments that it does not state.

    lacking: requirements of the tool that this machine does not meet.
    """

    tool: Tool
    reason: str
    args: dict[str, Any]
    missing: list[str]
    lacking: list[str]


def search(question: str, limit: int) -> list[Match]:
    """The tools whose own words match the question best, best first. Empty if none is about its subject."""
    words = subject_words(_named_by_kind(question))
    if not words or about_learning(question):
        return []
    with closing(_index()) as db:
        weights = ", ".join(str(weight) for _, weight, _ in COLUMNS)
        marks = ", ".join(f"highlight(tools, {i}, ?1, ?2)" for i in range(len(COLUMNS)))
        rows = db.execute(
            f"SELECT rowid, bm25(tools, {weights}), {marks} FROM tools WHERE tools MATCH ?3",
            (_OPEN, _CLOSE, " OR ".join(term(word) for word in words)),
        ).fetchall()
        shares = _shares(db, words)
    tools = registry.tools()
    standing = Counter(name for tool in tools for name in tool.next)
    absent = lacks()
    # bm25 is negative, the best match lowest. Among equals, a tool that many others lead to weighs a little more.
    ranks = {
        rowid: rank
        * _weight(tools[rowid], words, absent)
        * (1 + LEADS_HERE * standing[tools[rowid].name])
        * (DEFINES if _defines(tools[rowid], question) else 1.0)
        for rowid, rank, *_ in rows
    }
    about = [row for row in rows if shares[row[0]] >= LEAST_SHARE or _defines(tools[row[0]], question)]
    about.sort(key=lambda row: (ranks[row[0]] * shares[row[0]] ** SHARED, row[0]))
    return [_match(tools[rowid], columns, question, absent) for rowid, _, *columns in about[:limit]]


def about_learning(question: str) -> bool:
    """Return True if the question is about how well a model learns, and not also about speed or memory."""
    return bool(_LEARNING.search(question)) and not _COST.search(question)


def _defines(tool: Tool, question: str) -> bool:
    """Return True if the question asks for the meaning of a term, and the tool gives it."""
    return tool.name == "aisp_explain" and bool(_MEANING.search(question))


def _named_by_kind(question: str) -> str:
    """The question with a word for each name and number that the tools cannot know."""
    for pattern, word in _NAMES:
        question = pattern.sub(word, question)
    return question


def _shares(db: sqlite3.Connection, words: list[str]) -> dict[int, float]:
    """Share of the question's subject that each tool's own words contain; rare words are more of it."""
    found = {
        word: {row[0] for row in db.execute("SELECT rowid FROM tools WHERE tools MATCH ?", (_OWN.format(term(word)),))}
        for word in words
    }
    count = len(registry.tools())
    weights = {
        word: math.log((count + 1) / (1 + len(rows))) * (LITTLE if word in _EVERYWHERE else 1.0)
        for word, rows in found.items()
    }
    whole = sum(weights.values()) or 1.0
    return {
        rowid: sum(weight for word, weight in weights.items() if rowid in found[word]) / whole for rowid in range(count)
    }


def _weight(tool: Tool, words: list[str], absent: frozenset[str]) -> float:
    """Extra score for a tool that starts what the question requests or names; less for one that cannot run here."""
    starts = STARTS if words[0] in _ACTIONS and tool.effect is Effect.RUNS else 1.0
    if set(words) & set(tool.needs) & _PROGRAMS:
        return starts * NAMED
    return starts * (LACKING if absent & set(tool.needs) & _PROGRAMS else 1.0)


def lacks() -> frozenset[str]:
    """Needs of tools that this machine certainly does not meet."""
    gpus = len(nvml.gpu_uuids())
    absent = {"multi_gpu"} if gpus < 2 else set[str]()
    return frozenset(absent | (set() if gpus else {"gpu", "ncu"}))


def subject_words(question: str) -> list[str]:
    """The question's meaningful words, each once, in lower case."""
    words = re.findall(r"[^\W_]+", question.lower())
    return list(dict.fromkeys(word for word in words if word not in _EMPTY))


def term(word: str) -> str:
    """The word and its relatives: healthy matches health, which stemming alone does not. Two terms for every word, so
    that a long one weighs no more than a short one.
    """
    return f'"{word}" OR "{word[: max(5, len(word) - 2)]}"*'


def _index() -> sqlite3.Connection:
    """The catalogue in memory: built in about a millisecond, so it is never out of date."""
    db = sqlite3.connect(":memory:")
    names = ", ".join(name for name, _, _ in COLUMNS)
    db.execute(f"CREATE VIRTUAL TABLE tools USING fts5({names}, tokenize = 'porter unicode61')")
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    rows = ((rowid, *_texts(tool)) for rowid, tool in enumerate(registry.tools()))
    db.executemany(f"INSERT INTO tools(rowid, {names}) VALUES ({marks})", rows)
    return db


def _texts(tool: Tool) -> Iterator[str]:
    yield tool.name.removeprefix("aisp_")
    yield tool.cli
    yield tool.summary
    yield questions().get(tool.name, "")
    yield (tool.fn.__doc__ or "").partition("\n")[2]
    yield " ".join(f"{name} {field.description or ''}" for name, field in tool.params.model_fields.items())
    yield " ".join(f"{name} {field.description or ''}" for name, field in tool.result.model_fields.items())
    yield " ".join(name.removeprefix("aisp_") for name in tool.next)


def _match(tool: Tool, columns: list[str], question: str, absent: frozenset[str]) -> Match:
    args = ready_arguments(tool, question)
    missing = [name for name, field in tool.params.model_fields.items() if field.is_required() and name not in args]
    return Match(tool, _reason(columns), args, missing, sorted(absent & set(tool.needs)))


def _reason(columns: list[str]) -> str:
    """The tool's matching words, and where they occur; a word is named once, where it weighs most."""
    reasons: list[str] = []
    seen: set[str] = set()
    for (_, _, title), text in zip(COLUMNS, columns, strict=True):
        matches = re.findall(f"{_OPEN}(.*?){_CLOSE}", text)
        fresh = [word for word in dict.fromkeys(word.lower() for word in matches) if word not in seen]
        seen.update(fresh)
        if fresh:
            reasons.append(f"{title}: {', '.join(fresh[:6])}")
    return "; ".join(reasons)


def ready_arguments(tool: Tool, question: str) -> dict[str, Any]:
    """Arguments that the question states: targets, job and run ids, and numbers next to an argument's name."""
    arguments: dict[str, Any] = {}
    for name, field in tool.params.model_fields.items():
        values = _stated(name, question)
        if values:
            is_list = "list" in str(field.annotation)
            arguments[name] = values if is_list else values[0]
    return arguments


def _stated(name: str, question: str) -> list[Any]:
    if name in ("target", "targets"):
        return re.findall(r"\b(?:ch\d\d?|lab_?\w+)(?::\w+)?\b", question)
    if name == "chapter":
        return re.findall(r"\bch\d\d?\b", question)
    if name in ("job_id", "job_ids", "run_id"):
        return re.findall(r"\b[jr]_[\w-]{10,}", question)
    stem = re.escape(re.sub(r"(_(s|mb|gb|ms))?$", "", name))
    numbers = re.findall(rf"\b(\d+)\s*{stem}\b|\b{stem}\s*(?:=|of|is)?\s*(\d+)\b", question, re.IGNORECASE)
    return [int(before or after) for before, after in numbers]


@cache
def questions() -> dict[str, str]:
    """Tool name to the words people use when they mean it."""
    words: dict[str, str] = document("questions.yaml", "aisp_mcp.assist.guide")
    return words
