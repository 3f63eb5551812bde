"""Candidates for one target within a budget: begin, judge one, measure the leaders again, end.

The state is a hash-chained log in the store, home/optimizations/<id>/log.jsonl, from which the board is computed. The
original specification and every candidate are stored next to it. Only functions that measure import the code for that
(measuring.py): it takes half of the start-up time of a command.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound, Refused, StoreError, UsageError
from aisp_mcp.judge.audit_log import ChainLog, continued
from aisp_mcp.judge.loading import common_of, problem_files, problem_folder
from aisp_mcp.judge.presets import PRESETS, Preset
from aisp_mcp.optimize import board as boards
from aisp_mcp.optimize import workspace as workspaces
from aisp_mcp.optimize.records import (
    CANDIDATES,
    LOG,
    SPEC,
    WARM,
    Begun,
    Board,
    Budget,
    Judged,
    Started,
    Stop,
    Submission,
)
from aisp_mcp.process import isolation
from aisp_mcp.server.context import Context
from aisp_mcp.suites import names, selection
from aisp_mcp.suites.adapters import base, own_form

_ID = re.compile(r"o_[0-9a-f]{12}")
WHY: dict[Stop, str] = {
    "candidates": "all candidates of its budget were submitted",
    "minutes": "its time is up",
    "patience": "its last candidates did not improve on the best beyond noise",
    "finished": "it is finished",
}


@dataclass(frozen=True)
class SessionRequest:
    """Arguments of start(). workspace: a new or empty folder; None for a temporary one."""

    target: str
    roots: Sequence[Path]
    budget: Budget
    preset: str
    margin: float | None
    workspace: str | None


def start(ctx: Context, request: SessionRequest) -> Begun:
    """Make workspace and log. Raises as target_names.one and workspaces.make."""
    from aisp_mcp.optimize import measuring

    target = names.one(request.roots, request.target)
    session, baseline = f"o_{secrets.token_hex(6)}", Path(target.path)
    workspace, temporary = workspaces.make(request.workspace, ctx.allow_write)
    workspaces.fill(workspace, baseline, session, target, request.budget, temporary)
    folder = _folder(ctx, session)
    (folder / SPEC).mkdir(mode=0o700, parents=True)
    (folder / CANDIDATES).mkdir()
    _keep_specification(baseline, folder / SPEC)
    started = Started(
        id=session,
        principal=ctx.principal,
        target=target.name,
        at=ctx.clock(),
        budget=request.budget,
        preset=request.preset,
        margin=request.margin,
        baseline=baseline.name,
        baseline_sha256=hashlib.sha256((folder / SPEC / baseline.name).read_bytes()).hexdigest(),
        workspace=str(workspace),
        temporary=temporary,
        hidden=workspaces.hidden(request.roots, ctx.settings.home),
        known=workspaces.known(target, _earlier(ctx, target.name)),
    )
    log = ChainLog(folder / LOG)
    log.append("started", **started.model_dump(mode="json"))
    log.close()
    (folder / WARM).mkdir(mode=0o700)
    measuring.keep_libraries_loaded(ctx, started, folder / WARM)
    level = isolation.demand("auto")
    walls = f"{level}: candidates cannot read earlier solutions, the store or the working folder"
    if level not in isolation.NAMESPACES:
        walls = f"{level}: nothing keeps candidates from reading earlier solutions on this machine"
    return Begun(session=session, target=target.name, workspace=str(workspace), budget=request.budget, walls=walls)


def _keep_specification(baseline: Path, folder: Path) -> None:
    """Copy a specification with the files it reads: `_common.py` next to it, and the folder of an adapted problem."""
    shutil.copy(baseline, folder)
    if (common := common_of(baseline)).is_file():
        shutil.copy(common, folder)
    if (problem := problem_folder(baseline)).is_dir():
        shutil.copytree(problem, folder / problem.name)


def _earlier(ctx: Context, target: str) -> Iterator[tuple[str, Path]]:
    """Candidates of this user's earlier optimisations of the target, with names."""
    for log in sorted((ctx.settings.home / "optimizations").glob(f"*/{LOG}")):
        with suppress(NotFound, StoreError):
            started, _, _ = _read(ctx, log.parent.name)
            if started.target == target:
                for path in sorted((log.parent / CANDIDATES).glob("*.py")):
                    yield f"{started.id} {path.stem}", path


def named(ctx: Context, session: str | None) -> str:
    """The given id, else that of the newest optimisation. Raises NotFound NO_OPTIMIZATION."""
    if session is not None:
        return session
    sessions_found = []
    for log in (ctx.settings.home / "optimizations").glob(f"*/{LOG}"):
        with suppress(NotFound, StoreError):  # belongs to another principal, or is broken
            sessions_found.append(_read(ctx, log.parent.name)[0])
    if not sessions_found:
        raise NotFound("NO_OPTIMIZATION", "No optimisation was begun.", "aisp optimize start TARGET")
    return max(sessions_found, key=lambda started: started.at).id


def submit(ctx: Context, session: str, candidate: str) -> Judged:
    """Judge one candidate: the path of a file, or the text of a module.

    Raises Refused OPTIMIZATION_OVER and DUPLICATE_CANDIDATE, NotFound UNKNOWN_OPTIMIZATION, as texts, and the
    errors of a measurement if the specification is at fault.
    """
    from aisp_mcp.optimize import measuring

    with _open(ctx, session) as (log, started, submissions, finished):
        refuse_over(boards.board(started, submissions, ctx.clock(), finished))
        _, text = _texts(candidate, _folder(ctx, session) / SPEC / started.baseline)
        code = workspaces.fingerprint(workspaces.as_read(text))
        _refuse_duplicate(submissions, code)
        number = len(submissions) + 1
        path = _folder(ctx, session) / CANDIDATES / f"{number:03d}.py"
        path.write_bytes(text)
        log.append(
            "submitted",
            number=number,
            sha256=hashlib.sha256(text).hexdigest(),
            fingerprint=code,
            at=ctx.clock(),
            run_id=ctx.job_id or "",
            copied_from=started.known.get(code),
        )
    followed = number < started.budget.candidates
    run = measuring.measured(ctx, started, _folder(ctx, session), [number], started.preset, followed)
    comparison = run.comparisons[0].model_dump(mode="json") if run.comparisons else None
    failure = None if comparison else measuring.failure(run)
    with _open(ctx, session) as (log, _, _, _):
        log.append("judged", number=number, run_id=run.id, comparison=comparison, failure=failure)
    board = look(ctx, session)
    row = next(row for row in board.rows if row.number == number)
    return Judged(
        passed=run.passed if row.verdict is not None else False,
        row=row,
        stop=board.stop,
        candidates_left=board.candidates_left,
        seconds_left=board.seconds_left,
    )


def look(ctx: Context, session: str) -> Board:
    """The current board. Raises NotFound UNKNOWN_OPTIMIZATION, StoreError LOG_BROKEN."""
    started, submissions, finished = _read(ctx, session)
    return boards.board(started, submissions, ctx.clock(), finished)


def finish(ctx: Context, session: str) -> Board:
    """Measure the leaders again, once, and end. If it has already ended, the board is returned as it is.

    Raises as look, and the errors of a measurement if the specification is at fault.
    """
    from aisp_mcp.optimize import measuring

    started, submissions, finished = _read(ctx, session)
    if finished:
        return look(ctx, session)
    chosen, again = boards.finalists(submissions), {}
    run_id = None
    if chosen:
        preset = "default" if started.preset == "quick" else started.preset
        numbers = [submission.number for submission in chosen]
        run = measuring.measured(ctx, started, _folder(ctx, session), numbers, preset)
        again, run_id = (
            {int(comparison.candidate.rpartition("_")[2]): comparison for comparison in run.comparisons},
            run.id,
        )
    confirmed = boards.confirm(chosen, again)
    with _open(ctx, session) as (log, _, _, finished):
        if not finished:
            for number, proven in confirmed.items():
                second = again[number].model_dump(mode="json") if number in again else None
                log.append("again", number=number, again=second, again_run_id=run_id, confirmed=proven)
            log.append("finished", at=ctx.clock())
            shutil.rmtree(_folder(ctx, session) / WARM, ignore_errors=True)
            if started.temporary and Path(started.workspace).is_dir():
                shutil.move(started.workspace, _folder(ctx, session) / "workspace")
    return look(ctx, session)


def evidence(ctx: Context, session: str) -> tuple[list[str], Path]:
    """(ids of its runs, its folder) of a finished optimisation. Raises Refused NOT_FINISHED, and as look."""
    _, submissions, finished = _read(ctx, session)
    if not finished:
        raise Refused("NOT_FINISHED", f"{session} goes on.", f"End it: aisp optimize finish {session}")
    runs = [run_id for submission in submissions for run_id in (submission.run_id, submission.again_run_id) if run_id]
    return list(dict.fromkeys(runs)), _folder(ctx, session)


def refuse_over(board: Board) -> None:
    """Raise Refused OPTIMIZATION_OVER if nothing more is accepted."""
    if board.stop:
        raise Refused(
            "OPTIMIZATION_OVER",
            f"{board.session} accepts no more candidates: {WHY[board.stop]}.",
            "Finish it: the leaders are measured again." if board.stop != "finished" else "Begin another one.",
            [("aisp_optimize_board", {"session": board.session})],
        )


def preset_of(ctx: Context, session: str) -> Preset:
    """The preset of its first measurements."""
    return PRESETS[_read(ctx, session)[0].preset]


def _refuse_duplicate(submissions: Sequence[Submission], code: str) -> None:
    """Raise Refused DUPLICATE_CANDIDATE for the code of an earlier one; comments and import aliases do not matter.

    code: its fingerprint. One that could not be measured may be submitted again.
    """
    for submission in submissions:
        if not submission.failure and submission.fingerprint == code:
            raise Refused(
                "DUPLICATE_CANDIDATE",
                f"Candidate {submission.number} has the same code.",
                "Comments and names of imports do not make it new. It is measured again at the end if it leads.",
            )


def texts(ctx: Context, session: str, candidate: str) -> tuple[bytes, bytes]:
    """The text of a candidate, and the text that is judged: with run(), if it has another suite's form.

    Raises as look, NotFound NO_CANDIDATE, UsageError NOT_PYTHON, ONE_FILE and AMBIGUOUS.
    """
    started, _, _ = _read(ctx, session)
    return _texts(candidate, _folder(ctx, session) / SPEC / started.baseline)


def _texts(candidate: str, baseline: Path) -> tuple[bytes, bytes]:
    path = selection.candidate_file(candidate)
    if (path.suffix if path else selection.language(candidate)) in (".cpp", ".cu"):
        message = f"{path.name if path else 'The candidate'} is not Python; an optimisation judges Python files."
        hint = "Build it from one: torch.utils.cpp_extension.load_inline compiles a source that is a string."
        raise UsageError("NOT_PYTHON", message, hint)
    known = {file.name for file in (common_of(baseline), *problem_files(baseline))}
    others = [name for name in base.loaded_neighbours(path) if name not in known] if path else []
    if path and others:
        message = f"{path.name} loads {', '.join(others[:3])} next to it; an optimisation takes one file."
        raise UsageError("ONE_FILE", message, "Move that code into the candidate: a kernel's source can be a string.")
    text = path.read_bytes() if path else candidate.encode()
    with suppress(UnicodeDecodeError):
        return text, own_form.with_run(text.decode("utf-8"), baseline).encode()
    return text, text


def _folder(ctx: Context, session: str) -> Path:
    """The folder of an optimisation. Raises NotFound UNKNOWN_OPTIMIZATION for text that cannot be an id (or
    is a path).
    """
    if not _ID.fullmatch(session):
        raise _unknown(session)
    return ctx.settings.home.absolute() / "optimizations" / session


def _unknown(session: str) -> NotFound:
    return NotFound(
        "UNKNOWN_OPTIMIZATION", f"No optimisation has the id {session[:80]!r}.", "aisp optimize start gives one."
    )


@contextmanager
def _open(ctx: Context, session: str) -> Iterator[tuple[ChainLog, Started, list[Submission], bool]]:
    """The locked log, and its content. Raises NotFound UNKNOWN_OPTIMIZATION, StoreError LOG_BROKEN."""
    path = _folder(ctx, session) / LOG
    with ExitStack() as stack:
        try:
            log, records = stack.enter_context(continued(path))
            started, submissions, finished = parsed(records)
        except FileNotFoundError as error:
            raise _unknown(session) from error
        except (ValueError, KeyError, TypeError) as error:
            message = f"The log of {session} was changed: {str(error)[:200]}."
            raise StoreError("LOG_BROKEN", message, "Its content cannot be trusted.") from error
        if ctx.sees not in (None, started.principal):
            raise _unknown(session)
        yield log, started, submissions, finished


def parsed(records: Sequence[dict[str, Any]]) -> tuple[Started, list[Submission], bool]:
    """(facts, candidates, True if it has ended) of a log. Raises ValueError, KeyError or TypeError for another file."""
    started = Started.model_validate({k: v for k, v in records[0].items() if k not in ("kind", "prev")})
    return started, boards.submissions(records[1:]), any(record["kind"] == "finished" for record in records)


def _read(ctx: Context, session: str) -> tuple[Started, list[Submission], bool]:
    with _open(ctx, session) as (_, started, submissions, finished):
        return started, submissions, finished
