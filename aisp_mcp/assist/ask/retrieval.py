"""Passages that match a question: full-text search over concept pages, documentation, tools and stored runs.

Some words say what a question is about: results on this machine, or how to measure.
"""

from __future__ import annotations

import math
import re
import sqlite3
import threading
from contextlib import closing
from functools import cache

from aisp_mcp.assist.ask import pages
from aisp_mcp.assist.ask.pages import concepts
from aisp_mcp.assist.ask.records import Kind, Passage
from aisp_mcp.assist.guide.suggest import about_learning, questions, subject_words, term
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import ANY_KIND, OF_TARGETS, RunKind

RUNS, PASSAGE_CHARS = 20, 900
# Pages that duplicate the entries of tools and concepts.
GENERATED = frozenset({"tools", "cli", "settings", "errors"})
WEIGHTS = {"title": 4.0, "keywords": 5.0, "text": 1.0}
# bm25 favours short texts; concept pages are written for citation, tools' entries for calls.
KIND_WEIGHT: dict[Kind, float] = {"concept": 1.5, "page": 0.8, "tool": 0.7, "run": 1.0}
METHOD_WEIGHT = 3.0
# A question that has every word of a title is about it.
NAMED = 2.0
# Share of the question's subject that a passage contains: of that of the best one, and of all.
NEARLY, LEAST_SHARE = 0.6, 0.5
_LOCK = threading.Lock()

Row = tuple[Kind, str, str, str, str]  # kind, source, title, keywords, text


def search(question: str, ctx: Context, limit: int, loosely: bool = False) -> list[Passage]:
    """The best passages, at most one per source, best first. Empty if no word of the question matches.

    A question about this machine's own runs gets those first, the newest if it names no target; a question about how to
    measure prefers pages about measuring. loosely: also passages that contain little of the question.
    """
    words, about_own = subject_words(question), about_own_results(question)
    if not words or (about_learning(question) and not about_own):
        return []
    query = " OR ".join(term(word) for word in words)
    rows = _runs(ctx, evidence_only=not about_own)
    matches = _matches(_library(), query)
    in_runs = _run_matches(rows, query)
    if about_own:
        matches = [*in_runs, *((0.0, row) for row in rows)]
    else:
        matches = sorted(matches + in_runs, key=lambda match: match[0] * _preference(question, match[1]))
    best: dict[tuple[Kind, str], Row] = {}
    for _, row in matches:
        best.setdefault(row[:2], row)
    chosen = list(best.values())[:limit]
    return _passages(chosen if loosely or about_own or about_method(question) else _fitting(chosen, words))


def _fitting(rows: list[Row], words: list[str]) -> list[Row]:
    """The first row, and those after it that contain nearly as much of the question's subject."""
    weights = rarity(words)
    shares = [sum(weights[word] for word in words if contains(" ".join(row[1:]), word)) for row in rows]
    least = max(shares, default=0.0) * NEARLY
    whole = sum(weights.values())
    return [row for row, share in zip(rows, shares, strict=True) if share >= max(least, LEAST_SHARE * whole)]


def contains(text: str, word: str) -> bool:
    """Return True if the text has the word, or one with its beginning."""
    beginning = re.escape(word[: max(4, len(word) - 3)]) if len(word) > 4 else rf"{re.escape(word)}\b"
    return bool(re.search(rf"\b{beginning}", text, re.IGNORECASE))


def rarity(words: list[str]) -> dict[str, float]:
    """Weight of each word: the fewer passages of the library contain it, the more it says."""
    with _LOCK:
        library = _library()
        count = library.execute("SELECT count(*) FROM passages").fetchone()[0]
        found = {
            word: library.execute("SELECT count(*) FROM passages WHERE passages MATCH ?", (term(word),)).fetchone()[0]
            for word in words
        }
    return {word: math.log((count + 1) / (1 + number)) for word, number in found.items()}


def _preference(question: str, row: Row) -> float:
    """Weight of a passage for the question's intent; ranks are negative, so more is better."""
    if not about_method(question):
        return NAMED if set(subject_words(row[2])) <= set(subject_words(question)) else 1.0
    return METHOD_WEIGHT if row[1].partition("#")[0] in METHODOLOGY else 1 / METHOD_WEIGHT


def _run_matches(rows: list[Row], query: str) -> list[tuple[float, Row]]:
    """Passages of runs that share a word with the question, best first."""
    if not rows:
        return []
    with closing(_index(rows)) as db:
        return sorted(_matches(db, query), key=lambda match: match[0])


def _passages(chosen: list[Row]) -> list[Passage]:
    return [
        Passage(number=number, kind=kind, source=source, title=title, text=shortened(text))
        for number, (kind, source, title, _, text) in enumerate(chosen, 1)
    ]


def about_runs(question: str, ctx: Context, limit: int) -> list[Passage]:
    """Passages of stored runs that share a word with the question."""
    words = subject_words(question)
    if not words:
        return []
    matches = _run_matches(_runs(ctx, evidence_only=False), " OR ".join(term(word) for word in words))
    return _passages([row for _, row in matches][:limit])


def shortened(text: str) -> str:
    """The text up to a sentence's end within the size of a passage."""
    if len(text) <= PASSAGE_CHARS:
        return text
    cut = text[:PASSAGE_CHARS]
    end = max(cut.rfind(". "), cut.rfind("\n"))
    return cut[: end + 1].rstrip() if end > PASSAGE_CHARS // 2 else f"{cut.rstrip()}…"


def _matches(db: sqlite3.Connection, query: str) -> list[tuple[float, Row]]:
    """(rank, row) of each match; the best rank is the lowest."""
    weights = ", ".join(str(weight) for weight in ({"kind": 0.0, "source": 1.0} | WEIGHTS).values())
    sql = f"SELECT bm25(passages, {weights}), kind, source, title, keywords, text FROM passages WHERE passages MATCH ?"
    with _LOCK:
        rows = db.execute(sql, (query,)).fetchall()
    return [(rank * KIND_WEIGHT[kind], (kind, *rest)) for rank, kind, *rest in rows]


@cache
def _library() -> sqlite3.Connection:
    """Index of the shipped texts, built once per process (about 30 ms)."""
    rows: list[Row] = [
        ("concept", concept.name, concept.title, " ".join(concept.keywords), concept.text)
        for concept in concepts().values()
    ]
    for name in pages.titles():
        if name.partition("/")[0] not in GENERATED:
            rows += _sections(name)
    rows += [
        ("tool", tool.name, tool.summary, questions().get(tool.name, ""), tool.fn.__doc__ or tool.summary)
        for tool in registry.tools()
    ]
    return _index(rows)


def _index(rows: list[Row]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    columns = "kind UNINDEXED, source, title, keywords, text"
    db.execute(f"CREATE VIRTUAL TABLE passages USING fts5({columns}, tokenize = 'porter unicode61')")
    db.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?)", rows)
    return db


def _sections(name: str) -> list[Row]:
    """A page of the documentation, split at its headings."""
    title = pages.titles()[name]
    parts = re.split(r"^##+ +(.+?) *$", pages.page(name), flags=re.MULTILINE)
    headings = ["", *parts[1::2]]
    return [
        ("page", f"{name}#{_anchor(heading)}" if heading else name, heading or title, title, text.strip())
        for heading, text in zip(headings, parts[::2], strict=True)
        if text.strip()
    ]


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def _runs(ctx: Context, evidence_only: bool) -> list[Row]:
    """Verdicts of the latest runs that the caller may see, one passage each.

    evidence_only: leave out provisional verdicts and comparisons of two commits, which prove nothing about a target.
    """
    if not (ctx.settings.home / "aisp.db").exists():  # a question does not create a store
        return []
    store, kinds = ctx.store, (*OF_TARGETS, RunKind.VERIFY) if evidence_only else ANY_KIND
    runs = [store.run(Run, run_id, ctx.sees) for run_id in store.run_ids(RUNS, ctx.sees, kinds)]
    return [
        _verdict(run, comparison)
        for run in runs
        for comparison in run.comparisons
        if not (evidence_only and run.is_provisional(comparison))
    ]


def _verdict(run: Run, comparison: Comparison) -> Row:
    """The passage of one verdict, which names the kind of its run."""
    name = comparison.target
    about = {RunKind.BENCH: "", RunKind.FUNCTIONS: ""}.get(run.kind, f"{run.kind.value} ")
    commits = " to ".join(run.commits.get(end, "")[:10] for end in ("base", "head")) if run.commits else ""
    text = f"Commit {commits}: {comparison.sentence}" if commits else comparison.sentence
    if run.is_provisional(comparison):
        text = f"Provisional, one replicate: {text}"
    return "run", f"{run.id}/{name}", f"{name} in {about}run {run.id}", name.replace(":", " "), text


# Questions about the user's own results: "my last run", "what did my runs show", "did row_sum get faster".
_MINE = re.compile(
    r"\b(my|our|last|latest|recent|previous|stored|yesterday\S*|today\S*)\s+(\w+\s+)?"
    r"(runs?|verdicts?|results?|measurements?|comparisons?)\b"
    r"|\bwhat (did|have) (i|we)\b[^.?]{0,30}\b(run|measure|benchmark|judge)"
    r"|\b(runs?|verdicts?|results?)\b[^.?]{0,30}\b(on this machine|so far|stored)\b"
    r"|\b(i|we) (have |just )?(measured|judged|benchmarked|verified)\b|\b(did|was|is|has|got)\b.*[a-z]\w*:[a-z_]\w*",
    re.IGNORECASE,
)
_HOW = re.compile(
    r"\bhow\b[^.?]{0,40}\b(measure|benchmark|time|compare)\b(?!\s+(to|per)\b)"
    r"|\bhow many (runs|samples|repetitions|iterations)\b"
    r"|\b(right|proper|correct|best|fair) way to (measure|benchmark|time|compare)\b",
    re.IGNORECASE,
)
# Pages about measuring itself, not about something to measure.
METHODOLOGY = frozenset({"measurement-noise", "warm-up", "clocks", "cold-caches", "speedup-claims", "verdicts"})


def about_own_results(question: str) -> bool:
    """Return True if the question is about runs stored on this machine."""
    return bool(_MINE.search(question))


def about_method(question: str) -> bool:
    """Return True if the question asks how to measure."""
    return bool(_HOW.search(question)) and not about_own_results(question)
