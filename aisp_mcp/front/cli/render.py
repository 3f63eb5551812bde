"""Print answers with rich: lists of records as tables, records as names and values."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from aisp_mcp import envelope
from aisp_mcp.front import terminal_text
from aisp_mcp.front.cli import verdicts
from aisp_mcp.front.cli.commands import command_line, in_words_of_shell
from aisp_mcp.front.cli.format import GROUPED, label, labels, measured, value
from aisp_mcp.server.dispatch import Show
from aisp_mcp.server.registry import Tool

_SENTENCES = ("sentence", "line")  # fields that are a record's own sentence
SAYS_TIME = "s left"  # in a message that tells the time left itself
BAR = 16  # columns of a progress bar: the message beside it needs the rest of the line
SUBJECT = 28  # characters of the subject of a message there
FEW = 3  # rows whose sentences are read rather than a table
# Parts of a row that its sentence contains, or that say how it was measured, which --json and --evidence show.
_SAID = (
    *("target", "candidate", "verdict", "outcome", "provisional", "ratio", "interval", "low", "high", "noise_floor"),
    *("time_s", "verified", "clock", "of_peak", "headroom", "isolation", "at_least", "goal", "level"),
)
MAX_COLUMNS, MAX_CELL, GAP, MIN_VALUE, HASH = 12, 240, 2, 12, 12
STYLES = {
    "faster": "bold green",
    "passed": "green",
    "succeeded": "green",
    "ok": "green",
    "slower": "bold red",
    "incorrect": "bold red",
    "invalid": "bold red",
    "critical": "bold red",
    "failed": "red",
    "lost": "red",
    "warning": "yellow",
    "inconclusive": "yellow",
    "could_not_judge": "yellow",
    "same": "cyan",
    "running": "cyan",
}


def console(stderr: bool = False) -> Console:
    """Return a console, 160 columns wide when the output is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False, soft_wrap=False)


def answer(env: envelope.Envelope, why: bool = False) -> None:
    """Print a result, or the ticket of a job that is still running. why: with all that explains a verdict."""
    out = console()
    if env.result is None and env.job is not None:
        _print(out, _ticket(env.job))
        return
    result = terminal_text.escape_tree(env.result)
    if verdicts.is_run(result):
        result = verdicts.explained(result) if why else verdicts.brief(result)
    elif verdicts.is_step(result) and not why:
        result = {name: part for name, part in result.items() if name not in verdicts.IN_STEP}
    _print(out, render(result))
    if env.meta.host:
        out.print(f"[dim]host[/]     {escape(terminal_text.escape(env.meta.host))}")
    if env.nonfinite:
        out.print(f"[yellow]not finite:[/] {escape(terminal_text.escape(', '.join(env.nonfinite)))}")


def _print(out: Console, item: RenderableType) -> None:
    """Print; without a terminal, strip trailing spaces from each line."""
    if out.is_terminal:
        out.print(item)
        return
    with out.capture() as captured:
        out.print(item)
    out.file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def error(env: envelope.Envelope, tool: Tool) -> None:
    """Print an error, its hint and the next steps as command lines, on standard error."""
    assert env.error is not None
    out = console(stderr=True)
    message, hint = (
        terminal_text.escape(in_words_of_shell(text or "", tool)) for text in (env.error.message, env.error.hint)
    )
    out.print(Text.assemble(("error ", "bold red"), (env.error.code, "bold"), f": {message}"))
    if hint:
        out.print(Text.assemble(("hint: ", "yellow"), hint))
    for step in env.error.next_steps:
        out.print(Text.assemble(("try: ", "cyan"), terminal_text.escape(command_line(step.tool, step.args))))


class TimeLeft(ProgressColumn):
    """The share that is done and, from its speed so far, the time that the rest will take."""

    def render(self, task: Task) -> Text:
        if not task.total:
            return Text("")
        left = None if SAYS_TIME in task.description else task.time_remaining
        return Text(f"{task.percentage:.0f} %" + (f", about {round(left)} s left in all" if left else ""), "dim")


@contextlib.contextmanager
def bar() -> Iterator[Show]:
    """Show a progress bar on standard error."""
    one_line = Column(no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("{task.description}", table_column=one_line),
        BarColumn(BAR),
        TimeElapsedColumn(),
        TimeLeft(Column(no_wrap=True)),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def show(current: envelope.Progress) -> None:
            progress.update(
                task,
                completed=current.done,
                total=current.total,
                description=escape(_told(terminal_text.escape(current.message or "running"))),
            )

        yield show


def _told(message: str) -> str:
    """The message with a long subject cut short: what is being done must fit beside the bar."""
    subject, colon, what = message.partition(": ")
    return f"{subject[: SUBJECT - 1]}…: {what}" if colon and len(subject) > SUBJECT else message


def render(item: Any, name: str = "") -> RenderableType:
    if isinstance(item, dict):
        return Rows([{"name": key, **row} for key, row in item.items()]) if _is_table(item) else _record(item)
    if isinstance(item, list):
        return _list(item, name)
    return Text(value(name, item))


def _record(item: dict[str, Any]) -> RenderableType:
    """Render a record: its sentence first, then short values as a grid, then longer values as sections."""
    if _is_call(item):
        return styled("", item)
    if (opened := _headline_first(item)) is not None:
        return opened
    parts: list[RenderableType] = []
    item = measured(_for_people(item))
    rest = dict(item)
    if (
        said := next((name for name in (*_SENTENCES, *list(item)[:1]) if _opens(name, item.get(name))), None)
    ) is not None:
        parts.append(Text(in_words_of_shell(rest.pop(said)), style=STYLES.get(str(item.get("verdict")), "bold")))
    if "concept" in rest and isinstance(rest.get("definition"), str):  # it is the answer
        parts.append(Text(in_words_of_shell(rest.pop("definition")), style="bold"))
    if isinstance(opening := rest.get("opening"), list) and all(_is_statement(part) for part in opening):
        parts.append(Text(in_words_of_shell("\n".join(part["text"] for part in rest.pop("opening")))))
    if _is_cited(answered := rest.get("answer")):
        rest = {name: part for name, part in rest.items() if name not in ("answer", "answered_by") and part != 0}
        parts.append(Text(in_words_of_shell(" ".join(map(_cited, answered))), style="bold"))
    answers = [name for name, part in rest.items() if _says(part)]
    parts += [render(rest.pop(name), name) for name in answers]
    grid = Table.grid(padding=(0, 2))
    longest = max((cell_len(word) for name, part in rest.items() for word in _words(name, part)), default=0)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold", min_width=min(longest, MIN_VALUE))
    below: list[RenderableType] = []
    explained = rest.pop("definition", None) or rest.pop("definitions", None)
    for name, part in rest.items():
        if _is_hidden(part) or name == "next_cursor":
            continue
        if _is_short(part):
            grid.add_row(Text(label(name), style="dim"), styled(name, part))
        else:
            below += [Text(label(name), style="bold"), Padding(render(part, name), (0, 0, 0, 2), expand=False)]
    if grid.row_count:
        parts.append(grid)
    if not parts and not below:
        # Print something, since an empty answer looks like a failure.
        return Text(
            "\n".join(f"{label(name)}: none" for name, part in item.items() if part in ([], {})) or "nothing", "dim"
        )
    below += [Text(explained, style="dim")] if isinstance(explained, str) else []
    more = item.get("next_cursor")
    below += [Text(f"More: the same command with --cursor {more}", style="dim")] if more else []
    return Group(*parts, *below)


def _for_people(item: dict[str, Any]) -> dict[str, Any]:
    """The record without what only programs need: an empty text, paths into a document, a source's digest."""
    shown = {name: part for name, part in item.items() if part != "" and (name, part) != ("more", 0)}
    if isinstance(source := shown.get("source"), dict) and "sha256" in source:
        shown["source"] = " ".join(str(source[name]) for name in ("path", "tool", "version") if source.get(name))
    if isinstance(summary := shown.get("summary"), dict) and "opening" in summary:
        rest = {name: part for name, part in summary.items() if name != "opening"}
        shown |= {"opening": summary["opening"], "summary": rest}
    if "opening" in shown and isinstance(cost := shown.get("cost"), dict):  # whose sentence is the opening's first
        shown["cost"] = {name: part for name, part in cost.items() if name not in ("sentence", "timed")}
    return shown


def _opens(name: str, part: Any) -> bool:
    """Return True for a text that is a record's sentence; a summary is one if it comes first."""
    return isinstance(part, str) and name in (*_SENTENCES, "summary")


def _is_statement(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str) and set(part) <= {"text", "rows"}


def _is_cited(part: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Return True for sentences that cite passages."""
    return isinstance(part, list) and bool(part) and all(set(row) == {"text", "cites"} for row in part)


def _cited(sentence: dict[str, Any]) -> str:
    return f"{sentence['text']} {''.join(f'[{number}]' for number in sentence['cites'])}"


def _passage(row: dict[str, Any]) -> RenderableType:
    """A numbered passage: its title and source, then its text."""
    head = Text.assemble(f"[{row['number']}] ", (row["title"], "bold"), (f"  {row['source']}", "dim"))
    return Group(head, Padding(Text(in_words_of_shell(row["text"])), (0, 0, 0, 4), expand=False))


def _says(part: Any) -> bool:
    """True for records that each have a sentence: they are the answer, and the rest is about it."""
    return isinstance(part, list) and bool(part) and all(isinstance(row, dict) and row.get("sentence") for row in part)


def _headline_first(item: dict[str, Any]) -> RenderableType | None:
    """Render a planner's answer: its headline, then its figures, then their basis; None for other records."""
    figures = item.get("answer")
    if not isinstance(figures, dict):
        return None
    if not isinstance(figures.get("headline"), str):
        return Group(render(figures), render({name: part for name, part in item.items() if name != "answer"}))
    others = {name: part for name, part in figures.items() if name != "headline"}
    rest = {name: part for name, part in item.items() if name != "answer"}
    return Group(Text(figures["headline"], style="bold"), render(others), render(rest))


def _list(items: Sequence[Any], name: str) -> RenderableType:
    if not items:
        return Text("none", style="dim")
    if all(isinstance(item, dict) and {"number", "title", "source", "text"} <= set(item) for item in items):
        return Group(*map(_passage, items))
    if all(isinstance(item, dict) and not _is_call(item) for item in items):
        return Rows(items)
    if all(_is_call(item) for item in items):
        return Group(*map(_call, items))
    if all(_is_short(item) for item in items):
        return Text("\n".join(value(name, item) for item in items))
    return Group(*(render(item, name) for item in items))


def _call(item: dict[str, Any]) -> Text:
    """A command line, after the reason for it."""
    line = styled("", item)
    return Text.assemble((f"{item['why']}: ", "dim"), line) if item.get("why") else line


class Rows:
    """Records as a table: sentences above it, and below it, row by row, the fields that do not fit."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        settled = [_is_settled(row) for row in self._rows]
        rows = [measured(_abbreviated(row)) for row in self._rows]
        if all(isinstance(row.get("sentence"), str) for row in rows):
            sentences = [_sentence(row) for row in rows]
            if len(rows) <= FEW:  # a sentence has the numbers that a table would repeat
                yield from sentences
                # The flags of the only verdict are explained below it, and need no list.
                said = _SAID if len(rows) > 1 else (*_SAID, "flags")
                yield from (detail for row in rows if (detail := _rest(row, said)))
                return
            yield from (text for text, done in zip(sentences, settled, strict=True) if not done)
        names = [name for name in _names(rows) if all(_is_cell(row.get(name)) for row in rows)]
        names.sort(key=lambda name: name.endswith("_at"))  # when comes after what, which a narrow terminal must show
        widths = _widths(names, rows, options.max_width)
        if not widths or (len(widths) == 1 and any(isinstance(part, dict) for row in rows for part in row.values())):
            yield from (_record(row) for row in rows)
            return
        yield _grid(widths, rows)
        yield from (detail for row in rows if (detail := _rest(row, list(widths))))


def _is_settled(row: dict[str, Any]) -> bool:
    """True for a verdict or outcome that a table shows completely."""
    return str(row.get("verdict") or row.get("outcome")) in ("faster", "same", "improved", "unchanged")


def _abbreviated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a short hash: a whole one takes the width of four columns."""
    return {**row, "sha256": row["sha256"][:HASH]} if isinstance(row.get("sha256"), str) else row


def _sentence(row: dict[str, Any]) -> Text:
    """Remove the sentence from the row, and return it after the row's name, in the colour of its verdict."""
    text = Text(row.pop("sentence"), style=STYLES.get(str(row.get("verdict")), "bold"))
    name = next((part for part in row.values() if isinstance(part, str | int)), "")
    return Text.assemble((f"{name} ", "bold"), text)


def _widths(names: Sequence[str], rows: Sequence[dict[str, Any]], width: int) -> dict[str, int]:
    """Widths of as many columns, from the left, as fit without breaking a word.

    Spare width goes first to the columns that need least, so that short columns are complete; long ones share the rest.
    """
    widths: dict[str, int] = {}
    needs: dict[str, int] = {}
    spare = width + GAP
    for name, heading in zip(names[:MAX_COLUMNS], labels(names[:MAX_COLUMNS]), strict=True):
        cells = [heading, *(styled(name, row.get(name)).plain for row in rows)]
        words = [*heading.split(), *(word for row in rows for word in _words(name, row.get(name)))]
        minimum = max(map(cell_len, words), default=0)
        if spare < minimum + GAP:
            break
        spare -= minimum + GAP
        widths[name], needs[name] = minimum, max(map(cell_len, cells)) - minimum
    for done, name in enumerate(sorted(needs, key=lambda name: needs[name])):
        extra = min(needs[name], spare // (len(needs) - done))
        if extra < needs[name] and any(isinstance(row.get(name), list) for row in rows):
            extra = 0  # one item per line; at a width in between, an item would be separated from its unit
        widths[name] += extra
        spare -= extra
    return widths


def _words(name: str, item: Any) -> list[str]:
    """Parts that must not be broken: a number with its unit, else a word."""
    if isinstance(item, list):
        return [f"{value(name, part)}," for part in item]
    text = styled(name, item).plain
    return [text] if isinstance(item, int | float) else text.split()


def _grid(widths: dict[str, int], rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, GAP, 0, 0))
    for (name, width), heading in zip(widths.items(), labels(list(widths)), strict=True):
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*(styled(name, row.get(name)) for name in widths))
    return table


def _rest(row: dict[str, Any], columns: Sequence[str]) -> RenderableType | None:
    rest = {name: part for name, part in row.items() if name not in columns and not _is_hidden(part)}
    if "message" in row:
        rest.pop("evidence", None)  # the numbers from which the message was written
    if not rest:
        return None
    words = [row[name] for name in columns[:2] if isinstance(row.get(name), str | int)]
    names = [str(word) for word in words if isinstance(word, str) or (type(word) is int and word < GROUPED)]
    heading = Text(" ".join(names or [value(name, row.get(name)) for name in columns[:1]]), style="bold")
    rest = {name: _inline(part) for name, part in rest.items()}
    return Group(heading, Padding(_record(rest), (0, 0, 0, 2), expand=False))


def _inline(item: Any) -> Any:
    """A record of plain values on one line; other values as they are."""
    if not isinstance(item, dict) or _is_call(item) or any(isinstance(part, dict | list) for part in item.values()):
        return item
    return ", ".join(f"{label(name)} {value(name, part)}" for name, part in item.items() if part is not None)


def styled(name: str, item: Any) -> Text:
    """A value in the colour of its meaning; a call as a command line."""
    if _is_call(item):
        return Text(command_line(item["tool"], item.get("args") or {}), style="cyan")
    text = value(name, item)
    if isinstance(item, list) and any(isinstance(part, str) and " " in part for part in item):
        text = "\n".join(value(name, part) for part in item)  # sentences, one per line
    return Text(in_words_of_shell(text), style=STYLES.get(item, "") if isinstance(item, str) else "")


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys(
            name for row in rows for name in row if any(other.get(name) not in (None, [], {}, "") for other in rows)
        )
    )


def _is_short(item: Any) -> bool:
    """True for a value that fits on one line with its name."""
    if isinstance(item, dict):
        return _is_call(item) or set(item) in ({"low", "high"}, {"low", "high", "level"})
    if isinstance(item, list):
        return all(not isinstance(part, dict | list) for part in item) and len(str(item)) <= 200
    return not (isinstance(item, str) and "\n" in item)


def _is_cell(item: Any) -> bool:
    """True for a value that fits into a table cell."""
    return _is_call(item) or (_is_short(item) and len(value("", item)) <= MAX_CELL)


def _is_table(item: dict[str, Any]) -> bool:
    """Return True for records by name that have the same short fields."""
    rows = list(item.values())
    return len(rows) > 1 and all(
        isinstance(row, dict)
        and row.keys() == rows[0].keys()
        and not _is_call(row)
        and all(not isinstance(part, dict | list) for part in row.values())
        for row in rows
    )


def _is_hidden(item: Any) -> bool:
    """True for empty values and for JSON Schemas of arguments, for which people use --help."""
    return item in (None, [], {}, "") or (
        isinstance(item, dict) and item.get("type") == "object" and "additionalProperties" in item
    )


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and "tool" in item and set(item) <= {"tool", "args", "why"}


def _ticket(job: envelope.Ticket) -> RenderableType:
    ahead = f", {job.position} ahead of it" if job.position else ""
    wait = command_line("aisp_job_wait", {"job_ids": [job.job_id]})
    return Group(Text(f"Job {job.job_id} is {job.state}{ahead}."), Text.assemble(("wait for it: ", "dim"), wait))
