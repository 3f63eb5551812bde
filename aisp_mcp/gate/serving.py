"""Two commits of a server: started side by side from their checkouts, and judged as two servers are."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.gate.records import GateRow, Outcome
from aisp_mcp.process import sockets, tree
from aisp_mcp.process.run import MARK
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.runs.endpoint import judging, measuring, reporting, servers
from aisp_mcp.runs.endpoint.records import ServerVerdict
from aisp_mcp.runs.endpoint.tools import ServeBenchParams
from aisp_mcp.server.context import Context

PORT = "{port}"
START_S, POLL_S = 900.0, 0.2  # a large model takes minutes to load
TARGET = "serve"
OUTCOMES: dict[str, Outcome] = {
    judging.Word.BETTER: "improved",
    judging.Word.SAME: "unchanged",
    judging.Word.WORSE: "regressed",
    judging.Word.TRADE_OFF: "regressed",
    judging.Word.INCONCLUSIVE: "could_not_judge",
    judging.Word.INCORRECT: "wrong",
}


@dataclass(frozen=True)
class Started:
    """A running server of one commit."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


def require_port(command: str) -> list[str]:
    """The command's words. Raises UsageError NO_PORT."""
    words = shlex.split(command)
    if not any(PORT in word for word in words):
        hint = "Such as 'python serve.py --port {port}'."
        raise UsageError("NO_PORT", f"The command names no {PORT}, so two servers would need one.", hint)
    return words


def row(
    ctx: Context, command: str, checkouts: Sequence[Checkout], folder: Path, load: Mapping[str, Any] | None = None
) -> GateRow:
    """Start base and head, compare them, and end them. load: of serve-bench, where it is not the default. Raises
    Unavailable SERVER_DIED.
    """
    words = require_port(command)
    with ExitStack() as stack:
        pair = [
            stack.enter_context(_server(words, checkout.folder, folder / f"{name}.log"))
            for name, checkout in zip(("base", "head"), checkouts, strict=True)
        ]
        for each in pair:
            _wait(each)
        call = ServeBenchParams(url=pair[0].url, candidate=pair[1].url, **(load or {}))
        plan, both = reporting.prepared(call.model_dump(), ctx, START_S)
        measuring.self_test(plan)
        measured = measuring.measure(plan, both, ctx.progress)
        shown = reporting.all_figures(plan, both, measured)
        verdict = measuring.compare(plan, measured, shown, call.goal, call.limit)
    return _row(verdict)


def _row(verdict: ServerVerdict) -> GateRow:
    aims = [each for each in verdict.metrics if each.metric == verdict.goal and each.ratio]
    worst = min(aims, key=lambda each: each.ratio or 0.0, default=None)
    interval = worst.interval if worst else None
    return GateRow(
        target=TARGET,
        outcome=OUTCOMES[verdict.verdict],
        sentence=verdict.sentence,
        ratio=worst.ratio if worst else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        noise_floor=worst.noise_floor if worst else None,
    )


@contextmanager
def _server(words: Sequence[str], folder: Path, log: Path) -> Iterator[Started]:
    """Start the command in a checkout, on a free port; end it and all that it started."""
    port = sockets.free_port()
    argv = [word.replace(PORT, str(port)) for word in words]
    mark = secrets.token_hex(16)
    env = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            message = f"The server's command could not be started: {error}."
            raise Unavailable("SERVER_DIED", message, "Check the program's name.") from error
    try:
        yield Started(f"http://127.0.0.1:{port}", process, log)
    finally:
        process.kill()
        process.wait()
        tree.sweep_marked(MARK, mark)


def _wait(server: Started) -> None:
    """Wait until the server lists its models. Raises Unavailable SERVER_DIED."""
    end = time.monotonic() + START_S
    while server.process.poll() is None and time.monotonic() < end:
        try:
            servers.model(server.url, None)
            return
        except Unavailable:
            time.sleep(POLL_S)
    tail = server.log.read_text("utf-8", "replace").strip().splitlines()[-1:] or ["it wrote nothing"]
    what = "ended" if server.process.poll() is not None else f"did not answer within {START_S:g} s"
    raise Unavailable("SERVER_DIED", f"The server of {server.log.stem} {what}: {tail[0][:200]}.", str(server.log))
