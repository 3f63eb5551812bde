"""Run one tool from the command line: progress and its output on standard error, the answer on standard output."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import Envelope, Progress, Status
from aisp_mcp.errors import CANNOT_DECIDE, Unavailable
from aisp_mcp.front import terminal_text
from aisp_mcp.front.cli.arguments import parse
from aisp_mcp.front.cli.commands import command_line
from aisp_mcp.front.options import open_context
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool

USAGE = {"UsageError", "UnknownTool"}
BROKEN = 5
# Arguments that limit the wait; without one, the command line waits until the job ends.
TIME_LIMITS = {"wait_s", "timeout_s"}


def run(tool: Tool, argv: Sequence[str]) -> int:
    """Parse the arguments, call the tool, print the answer; returns the exit code."""
    raw, options = parse(tool, argv)
    ctx = open_context(options)
    with _stdout_to_stderr():
        answer = _compared(tool, raw, ctx, options) if _names_target(tool, raw) else _call(tool, raw, ctx, options)
    if options._json:
        print(terminal_text.escape_json(dispatch.to_json(dispatch.shorten(answer, ctx.settings))))
    else:
        _print(tool, answer, getattr(options, "_why", False))
    return exit_code(tool, answer)


def exit_code(tool: Tool, answer: Envelope) -> int:
    """Return 0 for a result or a ticket, 1 for a tool error, 2 for a usage error, 3 for a verdict that did not pass, 4
    for one that decided nothing, unless the tool has a switch for whether that fails, 5 if a generator or a checker
    cannot decide, or the result's own `exit_code`.
    """
    if answer.error is not None:
        return 2 if answer.error.kind in USAGE else BROKEN if answer.error.code in CANNOT_DECIDE else 1
    if not tool.verdict or not isinstance(answer.result, dict):
        return 0
    if "exit_code" in answer.result:
        return int(answer.result["exit_code"])
    passed = answer.result.get("passed", True)
    if passed is None:
        return 0 if "strict" in tool.params.model_fields else 4
    return 0 if passed else 3


COMPARE, RECORD = "aisp_profile_compare", "aisp_profile_torch"


def _names_target(tool: Tool, raw: dict[str, Any]) -> bool:
    """Return True for `profile compare ch11:NAME`: a target in place of two traces."""
    return (
        tool.name == COMPARE
        and "baseline" in raw
        and "candidate" not in raw
        and not Path(str(raw["baseline"])).exists()
    )


def _compared(tool: Tool, raw: dict[str, Any], ctx: Context, options: Namespace) -> Envelope:
    """Record baseline and candidate of the target, and compare both."""
    from aisp_mcp.system.gpu import nvml

    if nvml.benchmark_device() == "cpu":
        hint = f"Judge both without profiles: aisp bench run --targets {raw['baseline']}"
        raise Unavailable("NO_GPU", "Recordings are compared by their device activity; this machine has no GPU.", hint)
    recorder, traces = registry.get(RECORD), list[str]()
    for side in ("baseline", "candidate"):
        answer = _call(recorder, {"target": raw["baseline"], "side": side}, ctx, options)
        if answer.error is not None or not isinstance(answer.result, dict):
            return answer
        traces.append(str(answer.result["trace"]))
    return _call(tool, {**raw, "baseline": traces[0], "candidate": traces[1]}, ctx, options)


def _call(tool: Tool, raw: dict[str, Any], ctx: Context, options: Namespace) -> Envelope:
    # Typing a command confirms a job; a tool that asks for confirmation itself still asks.
    with _progress(quiet=options._json or tool.job is None) as show:
        ctx.progress = lambda done, total, message: show(Progress(done=done, total=total, message=message))
        answer = dispatch.start(tool.name, raw, ctx, confirmed=tool.job is not None)
    if isinstance(answer, Envelope):
        return answer
    has_limit = TIME_LIMITS & raw.keys() if tool.job is None else "wait_s" in raw
    try:
        with _progress(quiet=options._json) as show:
            return dispatch.follow(tool.name, answer, ctx, answer.deadline_s if has_limit else None, show)
    except KeyboardInterrupt:
        ticket = answer.ticket()
        if ticket.job is not None and tool.job is not None:
            _leave(ticket.job.job_id, ctx)
        raise


def _leave(job_id: str, ctx: Context) -> None:
    """After Ctrl-C: ask a person whether the job goes on, and say how to end it or wait for it later."""
    word = ""
    if sys.stdin.isatty() and sys.stderr.isatty():
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            word = input("\nThe job is still running. Let it go on? [Y/n] ")
    if word.strip().lower().startswith("n"):
        ctx.jobs.cancel(job_id)
        print("It is being cancelled.", file=sys.stderr)
        return
    wait = command_line("aisp_job_wait", {"job_ids": [job_id]})
    cancel = command_line("aisp_job_cancel", {"job_id": job_id})
    print(f"\nThe job goes on.\nWait for it: {wait}\nEnd it:      {cancel}", file=sys.stderr)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send output of a tool and its children to standard error, so that standard output has only the answer."""
    sys.stdout.flush()
    stdout_copy = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[dispatch.Show]:
    """Show a bar on a terminal, lines elsewhere, nothing with --json."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from aisp_mcp.front.cli.render import bar

        with bar() as show:
            yield show
    else:
        yield _ProgressLines()


class _ProgressLines:
    """Progress for a log file: a line whenever the message changes."""

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.message and progress.message != self._last:
            self._last = progress.message
            total = f"/{progress.total:g}" if progress.total else ""
            print(
                f"[{round(progress.done, 2):g}{total}] {terminal_text.escape(progress.message)}",
                file=sys.stderr,
                flush=True,
            )


def _print(tool: Tool, answer: Envelope, why: bool) -> None:
    from aisp_mcp.front.cli import render

    if answer.status is Status.ERROR:
        render.error(answer, tool)
    else:
        render.answer(answer, why)
        if answer.confirm:  # nothing has been done yet
            print(
                f"{terminal_text.escape(answer.confirm)} Repeat the command with --confirm to do it.", file=sys.stderr
            )
