"""The parent's handle on the verifier: one request, one answer, both lines of JSON."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.options import PATIENCE_S
from aisp_mcp.judge.parent.processes.confined import FILE_BYTES, Placement
from aisp_mcp.judge.parent.processes.forked import Forked, ForkServer, Libraries, server
from aisp_mcp.process import isolation

MODULE = "aisp_mcp.judge.verifier.main"


def fork_server(placement: Placement) -> ForkServer:
    return server(libraries(placement))


def libraries(placement: Placement) -> Libraries:
    """The libraries that it loads, and the environment in which it loads them."""
    return Libraries.of(_env(placement), (placement.folder, placement.seen), [MODULE])


def _env(placement: Placement) -> dict[str, str]:
    env = {name: value for name, value in placement.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return env | {"OMP_WAIT_POLICY": "PASSIVE"}  # idle threads would spin into a round


def started(
    fds: Sequence[int], placement: Placement, forks: ForkServer | None = None, patience_s: float = PATIENCE_S
) -> VerifierProcess:
    """A verifier with the descriptors of control blocks and arenas. forks: the server to fork it from."""
    argv = [MODULE, *map(str, fds)]
    spec = isolation.confinement(argv, "L1", file_bytes=FILE_BYTES)  # resource limits; it dies with its parent
    (its_in, asks), (answers, its_out) = os.pipe(), os.pipe()
    with (placement.folder / "output.log").open("wb") as log:
        inherited = {0: its_in, 1: its_out, 2: log.fileno(), **{fd: fd for fd in fds}}
        forks = forks or fork_server(placement)
        process = forks.start(argv, spec, _env(placement), placement.folder, inherited)
    os.close(its_in)
    os.close(its_out)
    return VerifierProcess(process, asks, answers, patience_s)


class VerifierProcess:
    """The trusted process, addressed in JSON lines. asks, answers: descriptors of the pipes to it and from it.
    patience_s: how long it may take for an answer.
    """

    def __init__(self, process: Forked, asks: int, answers: int, patience_s: float = PATIENCE_S) -> None:
        self.process, self._patience_s = process, patience_s
        self._asks, self._answers = os.fdopen(asks, "wb"), os.fdopen(answers, "rb", buffering=0)
        self._received = b""

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer. Raises BenchmarkError for errors of the specification."""
        self.post(verb, **request)
        return self.collect(verb)

    def post(self, verb: str, **request: Any) -> None:
        """Send a request whose answer is collected later."""
        with suppress(BrokenPipeError):
            self._asks.write((json.dumps({"verb": verb, **request}) + "\n").encode())
            self._asks.flush()

    def collect(self, verb: str) -> dict[str, Any]:
        """The answer to the first request that was posted and not collected. Raises BenchmarkError for errors of the
        specification.
        """
        line = self._next_line(verb)
        if not line:
            code = self.process.wait()
            raise BenchmarkError(
                "VERIFIER_ENDED",
                f"The verifier ended with {code} during '{verb}'.",
                "The baseline file crashed the interpreter or needs more memory than is available; run it by hand.",
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(**answer["error"])
        return answer

    def _next_line(self, verb: str) -> bytes:
        """The next line of its answers, several of which may arrive together; empty at their end."""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while b"\n" not in self._received:
            if not poll.poll(self._patience_s * 1000):
                raise BenchmarkError(
                    "VERIFIER_HANGS",
                    f"The verifier gave no answer to '{verb}' within {self._patience_s:.0f} s.",
                    "The baseline or its inputs hang, or are too large for this machine; run the file by hand.",
                )
            part = self._answers.read(1 << 16)
            if not part:
                return b""
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    @property
    def pipes(self) -> tuple[int, int]:
        """Descriptors of the pipes to it and from it."""
        return self._asks.fileno(), self._answers.fileno()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.leave()

    def leave(self) -> None:
        """Close this process's ends of the pipes."""
        for stream in (self._asks, self._answers):
            with suppress(BrokenPipeError):  # requests that it no longer read
                stream.close()
