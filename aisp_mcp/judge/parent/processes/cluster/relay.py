"""python -m aisp_mcp.judge.parent.processes.cluster.relay HOST:PORT: ranks on this node, for a parent on another node.

On this node it does what the parent does on its own node, with the same code: it starts confined ranks, writes their
inputs into memory shared with them, resumes and stops them, and reports the findings. A secret on standard input
authenticates the connection; the relay ends with it. Each request gets one answer. In between, a group reports that its
ranks have loaded (L), are ready (R), are stopped before a round, and are done and stopped again (D).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.errors import AispError
from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.processes import placement
from aisp_mcp.judge.parent.processes.cluster.nodes import ANSWER_S, digests, interface
from aisp_mcp.judge.parent.processes.confined import Placement, WorkerGone, fork_server
from aisp_mcp.judge.parent.processes.group import Share, WorkerGroup
from aisp_mcp.judge.parent.processes.process import Seen
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.link import Link, LinkLost, Mirror, connect
from aisp_mcp.judge.protocol.messages import DONE, DUMMY
from aisp_mcp.process import isolation
from aisp_mcp.system import cpu

Answer = tuple[dict[str, Any], list[bytes]]


class FarGroup(WorkerGroup):
    """Ranks of this node; the parent starts their rounds."""

    def __init__(
        self,
        name: str,
        setup: dict[str, Any],
        fds: list[tuple[int, int]],
        placement: Placement,
        share: Share,
        link: Link,
    ) -> None:
        super().__init__(name, setup, fds, placement, share)
        layout, ranks = Layout.from_json(setup["layout"]), range(share.first, share.first + len(fds))
        self.mirror = Mirror([fd for _, fd in fds], [layout.of_rank(rank) for rank in ranks])
        self._link = link

    def _begin(self) -> float:
        self._link.send({"said": "still"})
        self._link.receive(ANSWER_S)
        return clock()

    def _await(self, expected: bytes, deadline_s: float, seen: Seen | None = None) -> float:
        at_s = super()._await(expected, deadline_s, seen)
        if expected != DONE:  # which it reports when its ranks are stopped
            self._link.send({"said": expected.decode()})
        return at_s

    def _ended(self, count: int, elapsed_s: float, ran_s: float, before: Account) -> RoundTiming:
        self._link.send({"said": "D"})
        return super()._ended(count, elapsed_s, ran_s, before)


class Relay:
    """Answers to the parent's requests, each by a method of its name."""

    def __init__(self, link: Link, folder: Path) -> None:
        self._link, self._folder = link, folder
        self._groups: dict[int, FarGroup] = {}
        self._fds: list[list[tuple[int, int]]] = []

    def serve(self) -> None:
        """Serve until the parent is gone."""
        machine = {"cores": len(os.sched_getaffinity(0)), "cpu": cpu.read().model or ""}
        self._link.send({"version": __version__, "level": isolation.probe().level, **machine})
        with suppress(LinkLost):
            while True:
                request, data = self._link.receive()
                answer, parts = self._answer(request, data)
                self._link.send(answer, parts)

    def close(self) -> None:
        """Clean up after an earlier comparison."""
        for group in self._groups.values():
            group.close()
        for fd in (fd for worker in self._fds for rank in worker for fd in rank):
            os.close(fd)
        self._groups, self._fds = {}, []

    def _answer(self, request: dict[str, Any], data: memoryview) -> Answer:
        verb = request.pop("verb")
        act: Callable[..., Answer | None] = getattr(self, f"on_{verb}")
        try:
            result = act(data, **request) if verb in ("put", "prepare") else act(**request)
            return result or ({}, [])
        except WorkerGone as gone:
            return {"gone": {"code": gone.code, "message": gone.message, "text": gone.text}}, []
        except AispError as error:
            return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}, []

    def on_ping(self) -> None:
        """Answer with nothing."""

    def on_digests(self, paths: list[str]) -> Answer:
        return {"digests": digests([Path(path) for path in paths])}, []

    def on_open(
        self,
        level: isolation.Level,
        workers: int,
        ranks: int,
        threads: int,
        clean: bool,
        hidden: list[str],
        variables: list[tuple[str, str]],
    ) -> Answer:
        """Allocate memory for the workers and their ranks, and start a fork server for them."""
        self.close()
        self._fds = [[(_memory("control"), _memory("arena")) for _ in range(ranks)] for _ in range(workers)]
        self._placements = placement.PlacementFactory(
            Path(tempfile.mkdtemp(dir=self._folder)),
            "cpu",
            level,
            placement.worker_cpus(threads, ranks),
            clean,
            hidden=tuple(map(Path, hidden)),
            ranks=ranks,
            variables=tuple((name, value) for name, value in variables),
            network=True,
        )
        fork_server(self._placements.make("libraries"))
        return {"cpus": len(self._placements.cpus)}, []

    def on_start(
        self, worker_id: int, name: str, setup: dict[str, Any], share: dict[str, int], folder: str, replicate: int
    ) -> None:
        """Start the ranks of a program. folder: its name."""
        where = self._placements.make(folder, replicate)
        self._groups[worker_id] = FarGroup(
            name, setup, self._fds[worker_id], where, Share(share["first"], share["ranks"]), self._link
        )

    def on_prepare(self, data: memoryview, worker_id: int, setup: dict[str, Any], host: str, port: int) -> None:
        group = self._groups[worker_id]
        group.loaded(ANSWER_S)
        group.mirror.fill(data, 1, params=True)
        group.share = group.share._replace(meets=(host, port, interface(self._link.address)))
        group.prepare(group.placement.lent(setup))

    def on_ready(self, worker_id: int, deadline_s: float) -> None:
        self._groups[worker_id].ready(deadline_s)

    def on_put(self, data: memoryview, worker_id: int, count: int) -> None:
        self._groups[worker_id].mirror.fill(data, count)

    def on_round(self, worker_id: int, count: int, bits: int, deadline_s: float) -> Answer:
        """Run one round; return its frames as they were when all ranks were stopped."""
        group = self._groups[worker_id]
        with placement.watching(self._placements.cpus):
            timing = group.run_round(count, deadline_s, bits)
            frames = [bytes(part) for part in group.mirror.parts(count)] if not bits & DUMMY else []
            group.refuse_work_outside()  # an output changed after the end does not belong to the round
        times = {"durations_ns": timing.durations_ns, "apart_ns": timing.apart_ns}
        return {**times, "account": vars(timing.account)}, frames

    def on_close(self, worker_id: int) -> None:
        self._groups.pop(worker_id).close()


def _memory(name: str) -> int:
    return os.memfd_create(f"aisp-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def main() -> None:
    """Connect, serve, then end all started processes."""
    name, _, port = sys.argv[1].rpartition(":")
    link = connect(name, int(port), sys.stdin.readline().strip())
    with tempfile.TemporaryDirectory(prefix="aisp-", ignore_cleanup_errors=True) as folder:
        relay = Relay(link, Path(folder).resolve())
        try:
            relay.serve()
        finally:
            relay.close()


if __name__ == "__main__":
    main()
