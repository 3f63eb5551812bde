"""Rows and details of the terminal view, from the store and from tools. Does not import Textual."""

from __future__ import annotations

from os.path import relpath
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.cli.render import STYLES, render
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.front.tui.rows import ListRow
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.numbers import bound
from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import OF_TARGETS, VerdictFilter, VerdictRow
from aisp_mcp.suites.records import Target

JOBS, VERDICTS = 100, 200  # rows shown
BAR = 10  # width of a progress bar, in characters
SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
# Grey: neither success nor failure.
NEUTRAL_STYLES = {"inconclusive": "bright_black", "queued": "bright_black", "cancelled": "bright_black"}


class ListSource:
    """Reads for one user. Methods may block for a moment and raise AispError."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def machine(self) -> Text:
        """The machine line of aisp_status."""
        status = self._result("aisp_status", {})
        return Text(terminal_text.escape(status["line"]), style="green" if status["healthy"] else "bold red")

    def jobs(self) -> list[ListRow]:
        """The newest jobs; like every reader, this reconciles those whose process vanished."""
        jobs, _ = self._ctx.store.list_jobs(limit=JOBS, principal=self._ctx.sees)
        active = [job.id for job in jobs if not job.state.terminal]
        if active:
            current = {job.id: job for job in self._ctx.jobs.peek(active)}
            jobs = [current.get(job.id, job) for job in jobs]
        return [self._job(job) for job in jobs]

    def _job(self, job: Job) -> ListRow:
        elapsed = self._ctx.clock() - (job.started_at or job.created_at)
        tool = f"{job.tool.removeprefix('aisp_')} {job.subject}".strip()
        cells = (_styled(job.state), _plain(tool), _plain(progress(job)), _plain(age(elapsed)))
        return ListRow(job.id, cells, active=not job.state.terminal)

    def verdicts(self, filter_text: str) -> list[ListRow]:
        """The newest verdicts that match a filter, as over REST."""
        rows, _ = self._ctx.store.list_verdicts(parse(filter_text), VERDICTS, None, self._ctx.sees)
        return [self._verdict(row) for row in rows]

    def _verdict(self, row: VerdictRow) -> ListRow:
        floor = "" if row.noise_floor is None else f"±{numbers.percent(row.noise_floor)}"
        cells = (
            _verdict_text(row),
            _plain(subject(row)),
            _plain(ratio(row)),
            _plain(floor),
            _plain(age(self._ctx.clock() - row.created_at)),
        )
        return ListRow(f"{row.run_id} {row.target}", cells)

    def targets(self) -> list[Target]:
        """All targets under the bench roots, by name; files are read, not imported."""
        from aisp_mcp.suites.discovery import find_targets

        return find_targets(self._ctx.settings.bench_roots)

    def latest(self) -> dict[str, Text]:
        """The latest verdict of each variant, as a short text."""
        rows = self._ctx.store.latest_verdicts(VerdictFilter(), self._ctx.sees)
        rows.sort(key=lambda row: (not row.provisional, row.seq))  # a provisional verdict never hides a confirmed one
        return {row.target: Text.assemble(_verdict_text(row), f" {ratio(row)}") for row in rows}

    def describe_job(self, job_id: str) -> RenderableType:
        """A job's answer, state and the end of its output."""
        status = terminal_text.escape_tree(self._result("aisp_job_status", {"job_id": job_id}))
        answer = status.get("answer") or {}
        parts = [render(part) for name in ("result", "error") if (part := answer.get(name))]
        return Group(*parts, render({**status["job"], "exit_code": status["exit_code"]}), Text(status["log"], "dim"))

    def describe_target(self, name: str, targets: list[Target]) -> RenderableType:
        """Facts about a chapter, target or variant, and its latest verdicts."""
        facts: list[dict[str, Any]] = []
        for target in targets:
            names = {target.name, *(f"{target.name}_{variant.name}" for variant in target.variants)}
            if name == target.chapter or name in names:
                facts.append({**_facts(target), "path": relpath(target.path)})
        rows = self._ctx.store.latest_verdicts(VerdictFilter(text=(name,)), self._ctx.sees)
        verdicts = [
            {
                "target": row.target,
                "verdict": numbers.verdict(row.verdict, row.provisional),
                "ratio": ratio(row),
                "preset": row.preset,
                "on": row.device,
            }
            for row in rows
        ]
        return render(
            terminal_text.escape_tree(
                {**(facts[0] if len(facts) == 1 else {"targets": facts}), "last_verdicts": verdicts}
            )
        )

    def describe_verdict(self, key: str) -> RenderableType:
        """A comparison with all its evidence, and disturbances of the run."""
        run_id, _, target = key.partition(" ")
        run = self._ctx.store.run(Run, run_id, self._ctx.sees)
        for comparison in run.comparisons:
            if target == comparison.label:
                noise = [flag["message"] for flag in run.environment.get("during", {}).get("flags", [])]
                evidence = comparison.model_dump(mode="json", exclude={"log_sha256"}, exclude_none=True)
                return render(
                    terminal_text.escape_tree({**evidence, "noise": noise, "run": run.id, "preset": run.preset})
                )
        return Text("This verdict is no longer stored.")

    def start(self, name: str, preset: str) -> str:
        """Submit a run of a chapter, target or variant, and return the job's id."""
        pending = self._start("aisp_run_benchmarks", {"targets": [name], "preset": preset})
        assert isinstance(pending, dispatch.JobPending)
        return pending.job_id

    def follow(self, job_id: str, show: dispatch.Show) -> Envelope:
        """Wait until a job has ended."""
        return dispatch.follow("aisp_run_benchmarks", dispatch.JobPending(self._ctx, job_id, 0), self._ctx, None, show)

    def cancel(self, job_id: str) -> str:
        return str(self._result("aisp_job_cancel", {"job_id": job_id})["state"])

    def _start(self, tool: str, arguments: dict[str, Any]) -> Envelope | dispatch.Pending:
        """Start a tool, confirmed by the user. Raises the answer's error."""
        if tool not in registry.names():
            dispatch.load_tool(tool, self._ctx.settings)
        return _checked(dispatch.start(tool, arguments, self._ctx, confirmed=True))

    def _result(self, tool: str, arguments: dict[str, Any]) -> Any:
        answer = self._start(tool, arguments)
        if not isinstance(answer, Envelope):
            answer = _checked(dispatch.follow(tool, answer, self._ctx, answer.deadline_s))
        assert isinstance(answer, Envelope)
        return answer.result


def _facts(target: Target) -> dict[str, Any]:
    """A target's facts, with a summary of each variant."""
    variants = [
        {"variant": variant.name or "plain", "what": variant.problem or variant.summary} for variant in target.variants
    ]
    return {**target.model_dump(mode="json", exclude={"chapter", "variants"}), "variants": variants}


def _checked(answer: Envelope | dispatch.Pending) -> Envelope | dispatch.Pending:
    error = answer.error if isinstance(answer, Envelope) else None
    if error is not None:
        raise AispError(error.code, error.message, error.hint)
    return answer


def _plain(text: str) -> Text:
    return Text(terminal_text.escape(text).replace("\n", " "))


def _verdict_text(row: VerdictRow) -> Text:
    """The verdict in its colour; hollow and pale if there is only one replicate."""
    if not row.provisional:
        return _styled(row.verdict)
    return Text(f"{numbers.HOLLOW}{row.verdict}", style=f"dim {STYLES.get(row.verdict, '')}".replace("bold ", ""))


def _styled(state: str) -> Text:
    return Text(state, style=NEUTRAL_STYLES.get(state, STYLES.get(state, "")))


def age(seconds: float) -> str:
    """Format a duration in its largest whole unit: 5 s, 12 min, 3 h, 9 d."""
    for length, unit in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def ratio(row: VerdictRow) -> str:
    """Format a ratio with its interval; empty if the verdict has none."""
    if row.ratio is None or row.low is None or row.high is None:
        return ""
    return f"{bound(row.ratio) if row.at_least else ''}{row.ratio:.3g}x ({row.low:.3g}–{row.high:.3g})"


def subject(row: VerdictRow) -> str:
    """Name the target, and the kind of the run if the verdict is not about the target's candidates."""
    if row.kind in OF_TARGETS:
        return row.target
    commits = f" {row.base_revision[:10]}..{(row.revision or '')[:10]}" if row.base_revision else ""
    return f"{row.kind.value}{commits}: {row.target}"


def progress(job: Job) -> str:
    """Describe the progress of an active job, or why an ended job did not succeed."""
    if job.state.terminal:
        return job.reason or ""
    if job.position is not None:
        return f"{job.position} ahead" if job.position else "next"
    current = job.progress
    if current is None:
        return ""
    bar = ""
    if current.total:
        share = min(1.0, max(0.0, current.done / current.total))
        full = round(BAR * share)
        bar = f"{'█' * full}{'░' * (BAR - full)} {100 * share:3.0f} % "
    return bar + (current.message or "")
