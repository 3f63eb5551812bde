"""A run as Markdown for an issue, a pull request or an agent: one table, then the facts that a reader must know."""

from __future__ import annotations

import json
import re
from typing import Any

from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

_SUBJECTS = {
    RunKind.GATE: "Gate: one state of the code against another.",
    RunKind.VERIFY: "A caller's own candidate against a target's baseline.",
    RunKind.OPTIMIZE: "Candidates of an optimisation against the target's baseline.",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~&])")
_LIVE = re.compile(r"@|://|www(?=\.)", re.IGNORECASE)  # text that GitHub turns into mentions and links


def to_markdown(run: Run) -> bytes:
    """GitHub-flavoured Markdown; text from benchmarks is escaped, so it cannot add markup, links or mentions."""
    parts = [_head(run), _table(run), _notes(run), _problems(run), _environment(run)]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def escape(text: str) -> str:
    """One line of literal text. A zero-width space breaks what would become a mention or a link by itself."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return _LIVE.sub(lambda match: f"{match[0][:1]}\u200b{match[0][1:]}", _SPECIAL.sub(r"\\\1", line))


def subject(run: Run) -> str:
    """A sentence on the subject of the comparison, unless it is a target's candidates and its baseline; then empty."""
    if run.commits:
        what = "Commits of a repository" if run.kind is RunKind.COMMITS else "Gate"
        return f"{what}: commit {run.commits.get('base', '')} against {run.commits.get('head', '')}."
    return _SUBJECTS.get(run.kind, "")


def noise(run: Run) -> list[str]:
    """Disturbances of the machine during the measurement, shown at the top."""
    during = run.environment.get("during")
    flags = during.get("flags") if isinstance(during, dict) else None
    return [str(flag["message"]) for flag in flags or [] if isinstance(flag, dict) and "message" in flag]


def _head(run: Run) -> str:
    about = f"run {escape(run.id)}, {numbers.moment(run.created_at)}, preset {escape(run.preset)}"
    about += f", profile {escape(run.profile)}"
    kind = f"{subject(run)} " if subject(run) else ""
    return f"# {escape(run.title)}\n\n{kind}{about}, {numbers.seconds(run.seconds)}." + "".join(
        f"\n\nDisturbed: {escape(message)}" for message in noise(run)
    )


def _table(run: Run) -> str:
    if not run.comparisons:
        return "Nothing was compared."
    head = "| target | variant | verdict | ratio | 95 % interval | noise floor | baseline | candidate | verified |"
    rule = "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    return "\n".join(
        [head, rule, *(_row(comparison, run.is_provisional(comparison)) for comparison in run.comparisons)]
    )


def _row(comparison: Comparison, provisional: bool) -> str:
    interval = (
        f"{comparison.interval.low:.3f}–{comparison.interval.high:.3f}" if comparison.interval else numbers.MISSING
    )
    checked = (
        f"{comparison.verification.checked} of {comparison.verification.calls}"
        if comparison.verification
        else numbers.MISSING
    )
    cells = [
        escape(comparison.target),
        escape(comparison.candidate) or "plain",
        f"**{numbers.verdict(comparison.verdict.value, provisional)}**",
        numbers.ratio(comparison.ratio, comparison.at_least),
        interval,
        numbers.percent(comparison.noise_floor),
        _decisive(comparison.baseline),
        _decisive(comparison.optimized),
        checked,
    ]
    return "| " + " | ".join(cells) + " |"


def _decisive(figures: Figures | None) -> str:
    """The deciding value, with its unit."""
    if figures is None:
        return numbers.MISSING
    return (
        numbers.quantity(figures.metric.value, figures.metric.unit)
        if figures.metric
        else numbers.seconds(figures.time_s)
    )


def _notes(run: Run) -> str:
    lines = []
    for comparison in run.comparisons:
        name = escape(f"{comparison.target} {comparison.candidate}".strip())
        lines.append(f"- {name}: {escape(comparison.sentence)}")
        lines += [
            f"  - {escape(flag.severity)} {escape(flag.code)}: {escape(flag.message)}" for flag in comparison.flags
        ]
    return "## Verdicts\n\n" + "\n".join(lines) if lines else ""


def _problems(run: Run) -> str:
    lines = [f"- {escape(skip.target)}: skipped, {escape(skip.missing)}" for skip in run.skipped]
    lines += [f"- {escape(f.target)}: {escape(f.code)}, {escape(f.message)}" for f in run.failed]
    return "## Not measured\n\n" + "\n".join(lines) if lines else ""


def _environment(run: Run) -> str:
    rows = [f"| {escape(name)} | {escape(value)} |" for name, value in environment_rows(run.environment)]
    return "\n".join(["## Environment", "", "| what | value |", "| --- | --- |", *rows]) if rows else ""


LONGEST = 400


def environment_rows(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """A manifest as (dotted name, value) in its own order, without unreadable values, and without what `noise` says."""
    rows = [row for row in _flat(environment, "") if not row[0].startswith("during.flags[")]
    return [(name, _say(value)) for name, value in rows if value not in (None, "", [], {})]


def _flat(value: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        items = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        items = [(f"{name}[{index}]", item) for index, item in enumerate(value)]
    else:
        return [(name, value)]
    return [row for key, item in items for row in _flat(item, key)]


def _say(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
