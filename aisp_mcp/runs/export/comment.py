"""Pull request comments: a table, collapsed evidence, and a marker for finding the comment again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.runs.export.markdown import escape
from aisp_mcp.runs.export.outcomes import Row, State, count, of_run
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run

MAX_CHARS = 65_536
SIGNS = {
    "improved": "🟢 improved",
    "faster": "🟢 faster",
    "unchanged": "⚪ unchanged",
    "same": "⚪ same",
    "new": "⚪ new",
    "regressed": "🔴 regressed",
    "slower": "🔴 slower",
    "wrong": "🔴 wrong",
    "incorrect": "🔴 incorrect",
    "invalid": "🔴 invalid",
    "failed": "🔴 failed",
    "could not judge": "⚫ could not judge",
    "inconclusive": "⚫ inconclusive",
    "missing": "⚫ missing",
    "skipped": "⚫ skipped",
}
# States in the order in which a reader must act on them.
ORDER = (
    *("regressed", "slower", "wrong", "incorrect", "invalid", "failed", "missing", "could not judge", "inconclusive"),
    *("skipped", "improved", "faster", "new", "unchanged", "same"),
)


@dataclass(frozen=True)
class Page:
    """Parts in which comments differ. ratio: heading of the column of ratios; head and foot: whole lines."""

    head: Sequence[str]
    foot: Sequence[str]
    ratio: str


def marker(name: str) -> str:
    """The first line of the comment: the same for every push, so that the comment is updated and not repeated."""
    return f"<!-- aisp:{name} -->"


def title(what: str, passed: bool, rows: Sequence[Row]) -> str:
    """The heading of a gate's comment: if nothing could be judged, nothing passed."""
    word = "passed" if passed else "did not pass"
    if passed and rows and all(row.state is State.UNJUDGED for row in rows):
        word = "judged nothing"
    unjudged = count(rows, State.UNJUDGED)
    more = f", could not judge {unjudged} of {len(rows)}" if unjudged else ""
    return f"### {what} {word}{more}"


def run_comment(run: Run) -> str:
    """GitHub-flavoured Markdown of at most 65,536 characters; rows that do not fit are counted."""
    rows = of_run(run)
    unjudged = count(rows, State.UNJUDGED)
    word = {True: "passed", False: "did not pass", None: "judged nothing" if unjudged == len(rows) else "passed"}
    summary = f"{word[run.passed]}{f', {unjudged} of {len(rows)} not judged' if unjudged else ''}"
    foot = ["", f"{run.seconds / 60:.1f} min, preset {escape(run.preset)}. Run {escape(run.id)}."]
    page = Page([marker("run"), f"### Benchmarks {summary}", ""], foot, "baseline / candidate")
    return write(page, [(row, "") for row in rows])


def write(page: Page, rows: Sequence[tuple[Row, str]]) -> str:
    """The page with as many rows as fit, worst first."""
    heading = f"| benchmark | outcome | {page.ratio} | 95 % interval | noise floor |"
    table = [heading, "| --- | --- | ---: | ---: | ---: |"]
    evidence = ["<details><summary>Evidence</summary>", ""]
    room = MAX_CHARS - sum(map(len, [*page.head, *page.foot, *table, *evidence])) - 500
    left = 0
    for row, note in sorted(rows, key=lambda pair: (ORDER.index(pair[0].word), pair[0].target)):
        line, line_text = _line(row), f"- {escape(row.target)}: {escape(row.sentence[:600])}{note}"
        if len(line) + len(line_text) + 2 > room:
            left += 1
            continue
        room -= len(line) + len(line_text) + 2
        table.append(line)
        evidence.append(line_text)
    more = [f"\n{left} more benchmarks do not fit here; the report has all."] if left else []
    return "\n".join([*page.head, *table, *more, "", *evidence, "", "</details>", *page.foot]) + "\n"


def _line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"{numbers.bound(row.ratio) if row.at_least else ''}{row.ratio:.3f}x"
    interval = "" if row.low is None or row.high is None else f"{row.low:.3f}–{row.high:.3f}"
    floor = "" if row.noise_floor is None else f"±{100 * row.noise_floor:.1f} %"
    word = numbers.verdict(row.word, True) if row.provisional else SIGNS[row.word]
    return f"| {escape(row.target)} | {word} | {ratio} | {interval} | {floor} |"
