"""Rows and details that the terminal view shows, read from the store and through dispatch. Knows no Textual."""

from __future__ import annotations

from os.path import relpath
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError
from aisp_mcp.front import neutral
from aisp_mcp.front.cli.render import STYLES, render
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.front.tui.rows import Row
from aisp_mcp.front.tui.words import age, progress, ratio
from aisp_mcp.judge.records.run import Run
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow
from aisp_mcp.suites.records import Target

JOBS, VERDICTS = 100, 200  # rows shown
# Grey, not a colour of success or failure.
UNJUDGED = {"inconclusive": "bright_black", "queued": "bright_black", "cancelled": "bright_black"}


class Source:
    """Reads for one user. Every method may block for moments and raises AispError."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def machine(self) -> Text:
        """The line of the tool aisp_status."""
        found = self._result("aisp_status", {})
        return Text(neutral.text(found["line"]), style="green" if found["healthy"] else "bold red")

    def jobs(self) -> list[Row]:
        """The newest jobs; those that have not ended are looked after, as by any other reader."""
        found, _ = self._ctx.store.list_jobs(limit=JOBS, principal=self._ctx.sees)
        active = [job.id for job in found if not job.state.terminal]
        if active:
            now = {job.id: job for job in self._ctx.jobs.peek(active)}
            found = [now.get(job.id, job) for job in found]
        return [self._job(job) for job in found]

    def _job(self, job: Job) -> Row:
        began = job.created_at if not job.started_at else job.started_at
        tool = job.tool.removeprefix("aisp_")
        cells = (_word(job.state), _plain(tool), _plain(progress(job)), _plain(age(self._ctx.clock() - began)))
        return Row(job.id, cells, active=not job.state.terminal)

    def verdicts(self, words: str) -> list[Row]:
        """The newest verdicts that match a filter, as over REST."""
        rows, _ = self._ctx.store.list_verdicts(parse(words), VERDICTS, None, self._ctx.sees)
        return [self._verdict(row) for row in rows]

    def _verdict(self, row: VerdictRow) -> Row:
        floor = "" if row.noise_floor is None else f"±{numbers.percent(row.noise_floor)}"
        cells = (
            _word(row.verdict),
            _plain(row.target),
            _plain(ratio(row)),
            _plain(floor),
            _plain(age(self._ctx.clock() - row.created_at)),
        )
        return Row(f"{row.run_id} {row.target}", cells)

    def targets(self) -> list[Target]:
        """Everything under the bench root, by name; files are read, not imported."""
        from aisp_mcp.suites.discovery import find_targets

        return find_targets(self._ctx.settings.bench_roots)

    def latest(self) -> dict[str, Text]:
        """The last verdict of each full name, as a short text."""
        rows = sorted(self._ctx.store.latest_verdicts(VerdictFilter(), self._ctx.sees), key=lambda row: row.seq)
        return {row.target: Text.assemble(_word(row.verdict), f" {ratio(row)}") for row in rows}

    def describe_job(self, job_id: str) -> RenderableType:
        """Answer, state and the end of the output of a job."""
        found = neutral.tree(self._result("aisp_job_status", {"job_id": job_id}))
        answer = found.get("answer") or {}
        parts = [render(part) for name in ("result", "error") if (part := answer.get(name))]
        return Group(*parts, render({**found["job"], "exit_code": found["exit_code"]}), Text(found["log"], "dim"))

    def describe_target(self, name: str, targets: list[Target]) -> RenderableType:
        """Facts of a chapter, target or variant, and its last verdicts."""
        facts: list[dict[str, Any]] = []
        for target in targets:
            names = {target.name, *(f"{target.name}_{one.name}" for one in target.variants)}
            if name == target.chapter or name in names:
                facts.append({**_facts(target), "path": relpath(target.path)})
        rows = self._ctx.store.latest_verdicts(VerdictFilter(text=(name,)), self._ctx.sees)
        last = [
            {"target": row.target, "verdict": row.verdict, "ratio": ratio(row), "preset": row.preset, "on": row.device}
            for row in rows
        ]
        return render(neutral.tree({**(facts[0] if len(facts) == 1 else {"targets": facts}), "last_verdicts": last}))

    def describe_verdict(self, key: str) -> RenderableType:
        """The ruling with all its evidence, and what disturbed the run."""
        run_id, _, target = key.partition(" ")
        run = self._ctx.store.run(Run, run_id, self._ctx.sees)
        for one in run.comparisons:
            if target == one.label:
                noise = [flag["message"] for flag in run.environment.get("during", {}).get("flags", [])]
                evidence = one.model_dump(mode="json", exclude={"log_sha256"}, exclude_none=True)
                return render(neutral.tree({**evidence, "noise": noise, "run": run.id, "preset": run.preset}))
        return Text("This verdict is no longer stored.")

    def start(self, name: str, preset: str) -> str:
        """Submit a run of a chapter, target or variant; the job's id."""
        pending = self._start("aisp_run_benchmarks", {"targets": [name], "preset": preset})
        assert isinstance(pending, dispatch.JobPending)
        return pending.job_id

    def follow(self, job_id: str, show: dispatch.Show) -> Envelope:
        """Wait for a job to its end."""
        return dispatch.follow("aisp_run_benchmarks", dispatch.JobPending(self._ctx, job_id, 0), self._ctx, None, show)

    def cancel(self, job_id: str) -> str:
        """End a job; its state afterwards."""
        return str(self._result("aisp_job_cancel", {"job_id": job_id})["state"])

    def _start(self, tool: str, arguments: dict[str, Any]) -> Envelope | dispatch.Pending:
        """A call by a person, who has decided to make it. Raises the answer's error."""
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
    """A target for a reader: variants by what they do."""
    variants = [{"variant": one.name or "plain", "what": one.problem or one.summary} for one in target.variants]
    return {**target.model_dump(mode="json", exclude={"chapter", "variants"}), "variants": variants}


def _checked(answer: Envelope | dispatch.Pending) -> Envelope | dispatch.Pending:
    error = answer.error if isinstance(answer, Envelope) else None
    if error is not None:
        raise AispError(error.code, error.message, error.hint)
    return answer


def _plain(text: str) -> Text:
    return Text(neutral.text(text).replace("\n", " "))


def _word(word: str) -> Text:
    return Text(word, style=UNJUDGED.get(word, STYLES.get(word, "")))
