"""The page of validity issues: every issue with its control, its attacks and the devices they have run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import CLASSES, HEADS, Issue, attack_round, incidents, issues, page

_HEAD = """\
# Validity issues

{count} ways in which a reported speed-up can be untrue. For each one, this page shows the harness's control, the
isolation level that it needs, which attack was run, and on what. No row claims protection: it names the attack that was
stopped, or the reason why there is none. Try them on your own machine:

    aisp bench selftest                     # one attack per issue, a few minutes
    aisp bench selftest --kind honest       # the look-alikes that must not be accused
    aisp bench selftest --issue 9 --all     # everything about one issue

Its comparisons are short (two pairs of processes, rounds of 6 ms). On two cores, identical programs differ by 1.06 in
the mean there, by 1.01 at `quick`: repeat an attack that gains a tenth by itself before you believe it.

How the harness works: [harness.md](harness.md). Recorded runs: [results](../results/README.md).

The column "undefended" shows the speedup that a typical harness reports for the best attack of an issue, and on which
device. *One process*: both programs in one interpreter on one set of inputs, warmed up, timed by a clock that the
candidate can reach (on a GPU by events on the current stream). *Cold calls*: the same without a warm-up, by the mean of
the first calls. *Own word*: each program in its own process, which reports its own times; no output is checked. If no
attack gains, the text below the table says why. Repeat it with
[tools/undefended.py](../tools/undefended.py).
"""


def validity_page() -> str:
    """docs/validity.md without its marker."""
    lines = [_HEAD.format(count=len(issues())), *_summary(issues())]
    for category in dict.fromkeys(issue.category for issue in issues()):
        some = [issue for issue in issues() if issue.category == category]
        lines += ["", f"## {category.capitalize()}", "", *_table(some), *_pages(some)]
    round_text = attack_round().replace("](../../docs/", "](")  # the page itself is in docs/
    lines += ["", "## What has happened in public", "", *_incidents(), "", round_text]
    return "\n".join(lines) + "\n"


def _summary(all_of_them: Sequence[Issue]) -> Iterator[str]:
    yield "| class | issues | with an attack | executed on a CPU | on an H200 | on two H200s | never executed |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for kind, meaning in CLASSES.items():
        some = [issue for issue in all_of_them if issue.kind == kind]
        ran = [sum(device in issue.executed_on for issue in some) for device in ("cpu", "H200", "2xH200")]
        never = sum(not issue.executed_on for issue in some)
        attacked = sum(issue.attacked for issue in some)
        yield f"| {kind} {meaning} | {len(some)} | {attacked} | {ran[0]} | {ran[1]} | {ran[2]} | {never} |"


def _table(some: Sequence[Issue]) -> Iterator[str]:
    yield "| | issue | class | level | control | attacks | undefended | executed on |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for issue in some:
        attacks = len(_names(issue, "attack"))
        file = f"[{attacks}](../aisp_mcp/validity/{issue.file})" if issue.attacked else "none"
        where = ", ".join(issue.executed_on) or "never"
        cells = (issue.id, issue.title, issue.kind, issue.isolation, issue.control, file, _gain(issue), where)
        yield f"| {' | '.join(map(str, cells))} |"


def _gain(issue: Issue) -> str:
    undefended = issue.undefended
    if undefended.gain:
        return f"{undefended.gain:.3g}x, {undefended.harness}, {undefended.device}"
    return "none" if undefended.why else ""


def _pages(some: Sequence[Issue]) -> Iterator[str]:
    for issue in some:
        yield ""
        yield f"**{issue.id}. {issue.title}.**"
        sections = page(issue)
        yield " ".join(f"*{head}:* {sections[head]}" for head in HEADS if head in sections) or issue.reason
        if issue.facts:
            yield f"Disclosed as {', '.join(f'`{name}`' for name in issue.facts)}."
        if issue.attacked:
            why = f" No gain undefended: {issue.undefended.why}" if issue.undefended.why else ""
            attacks, twins = (", ".join(_names(issue, kind)) for kind in ("attack", "honest"))
            yield f"Attacks: {attacks}. Honest twins: {twins}.{why}"


def _names(issue: Issue, kind: str) -> list[str]:
    return [f"`{case.name}`" for case in corpus.cases(kind=kind) if case.issue == issue.id]


def _incidents() -> Iterator[str]:
    yield "| year | what | issues | source |"
    yield "| --- | --- | --- | --- |"
    for incident in incidents():
        numbers = ", ".join(map(str, incident.issues))
        source = f"<{incident.source}>" if incident.source.startswith("http") else incident.source
        yield f"| {incident.year} | **{incident.title}.** {incident.what} | {numbers} | {source} |"
