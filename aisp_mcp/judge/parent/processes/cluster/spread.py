"""The parent's handle on a worker whose ranks are spread over nodes: its local ranks, and a relay for those of each
other node.

In a round, the inputs go to the other nodes; every process tree is checked to be stopped; the clock is read and all
ranks are resumed. The clock stops when every tree, here and on the other nodes, is stopped again. Then outputs are
copied back into the memory that the verifier reads.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import sub
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.processes.cluster.nodes import ANSWER_S, Node, interface
from aisp_mcp.judge.parent.processes.confined import Placement
from aisp_mcp.judge.parent.processes.group import Share, WorkerGroup
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.link import Mirror
from aisp_mcp.judge.protocol.messages import DUMMY

PORTS = range(20_000, 32_000)  # below the ports that the kernel gives to connections


class SpreadGroup(WorkerGroup):
    """One worker of one replicate over nodes; see WorkerGroup. number: of the worker, replicate: of the replicate."""

    def __init__(
        self,
        name: str,
        setup: dict[str, Any],
        fds: Sequence[tuple[int, int]],
        placement: Placement,
        nodes: Sequence[Node],
        number: int,
        replicate: int,
    ) -> None:
        here, layout = len(fds) // (1 + len(nodes)), Layout.from_json(setup["layout"])
        super().__init__(name, setup, fds[:here], placement, Share(0, len(fds)))
        self.number, self._far = number, dict[Node, Mirror]()
        for first, node in zip(range(here, len(fds), here), nodes, strict=True):
            ranks = range(first, first + here)
            self._far[node] = Mirror([fds[rank][1] for rank in ranks], [layout.of_rank(rank) for rank in ranks])
            share = {"first": first, "ranks": len(fds)}
            folder = placement.folder.name
            node.ask("start", worker_id=number, name=name, setup=setup, share=share, folder=folder, replicate=replicate)
            self._answering.append(node.link.fileno())
        self._round: dict[str, Any] = {}

    def prepare(self, setup: dict[str, Any]) -> None:
        """Tell the ranks of all nodes what to prepare; they rendezvous at the first rank's store."""
        self.loaded(ANSWER_S)  # ranks wait for each other only this long
        address = next(iter(self._far)).link.address
        port = _free_port()
        self.share = self.share._replace(meets=(address, port, interface(address)))
        for node, mirror in self._far.items():
            node.ask(
                "prepare", mirror.parts(1, params=True), worker_id=self.number, setup=setup, host=address, port=port
            )
        super().prepare(self.placement.lent(setup))

    def ready(self, deadline_s: float) -> None:
        for node in self._far:
            node.post("ready", worker_id=self.number, deadline_s=deadline_s)
        super().ready(deadline_s)
        for node in self._far:
            node.collect(ANSWER_S)

    def run_round(
        self, count: int, deadline_s: float, bits: int = 0, at_done: Callable[[], object] | None = None
    ) -> RoundTiming:
        self._round = {"worker_id": self.number, "count": count, "bits": bits, "deadline_s": deadline_s}
        for node, mirror in self._far.items() if not bits & DUMMY else ():
            node.ask("put", mirror.parts(count), worker_id=self.number, count=count)
        return super().run_round(count, deadline_s, bits, at_done)

    def _begin(self) -> float:
        for node in self._far:
            node.post("round", **self._round)
        for node in self._far:
            node.hear(ANSWER_S)  # it has its inputs and is stopped
        begin = clock()
        for node in self._far:
            node.tell({"go": True})
        return begin

    def _called(self, number: int) -> str:
        here = len(self.controls)
        return super()._called(number) if number < here else f"node {[*self._far][number - here].name}"

    def _expect(self, expected: bytes, number: int) -> None:
        here = len(self.controls)
        if number < here:
            super()._expect(expected, number)
            return
        node = [*self._far][number - here]
        message, _ = node.hear(ANSWER_S)
        if message.get("said") != expected.decode():
            raise node.lost(f"it said {message!r:.60} instead of {expected!r}")

    def _ended(self, count: int, elapsed_s: float, ran_s: float, before: Account) -> RoundTiming:
        timing = super()._ended(count, elapsed_s, ran_s, before)
        for node, mirror in self._far.items():
            answer, data = node.collect(ANSWER_S)
            if not self._round["bits"] & DUMMY:
                mirror.fill(data, count)
            slowest = timing.durations_ns, answer["durations_ns"]
            fastest = (map(sub, *pair) for pair in zip(slowest, (timing.apart_ns, answer["apart_ns"]), strict=True))
            durations = [*map(max, *slowest)]
            apart = [*map(sub, durations, map(min, *fastest))]
            account = _sum(timing.account, Account(**answer["account"]))
            timing = replace(timing, durations_ns=durations, account=account, apart_ns=apart)
        return timing

    def close(self) -> None:
        if not self.output.closed:
            for node in self._far:
                with suppress(Unavailable):
                    if not node.pending:
                        node.ask("close", worker_id=self.number)
                if node.pending:  # it may wait for ranks that never answer; they end with it
                    node.close()
        super().close()


def _sum(account: Account, other: Account) -> Account:
    """Add up the accounts of two nodes; the processes of a group count as one."""
    totals = {name: value + getattr(other, name) for name, value in vars(account).items()}
    return Account(**{**totals, "processes": totals["processes"] - 1})


def _free_port() -> int:
    """A free port. Raises Unavailable."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("", port))
            return port
    raise Unavailable(
        "NODE_LOST", f"No port of {PORTS.start} to {PORTS.stop - 1} is free for the rendezvous of the ranks."
    )
