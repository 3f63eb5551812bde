"""The parent's handle on a program with several ranks: one confined process tree, started together; a round ends with
the last rank.

All ranks of a program share its namespaces and talk over its loopback. The tree is stopped, resumed and accounted for
as a whole; each rank has its own pipes, control block and arena.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.processes.confined import Placement, WorkerGone, prefer, raised
from aisp_mcp.judge.parent.processes.process import Seen, WorkerProcess
from aisp_mcp.judge.parent.timing.memory.accounting import Watch, inode
from aisp_mcp.judge.protocol.clock import clock, own_delay
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import DONE, SHARED
from aisp_mcp.judge.protocol.shared_memory import ControlBlock

COLLECTIVE_S = 30.0  # a rank waits this long for the others before its collective raises
LAST_RANK_S = 2 * COLLECTIVE_S  # after the first rank has ended its calls: NCCL's kernels do not give up by themselves


class Share(NamedTuple):
    """The ranks of a program that a group runs. first: the number of its first one. ranks: of the whole program, 0 for
    those of the group. meets: where ranks of several nodes find each other: host and port of the first rank's store,
    and this node's network interface; None if all use one folder.
    """

    first: int = 0
    ranks: int = 0
    meets: tuple[str, int, str] | None = None


WHOLE = Share()


def start(
    name: str, setup: dict[str, Any], fds: Sequence[tuple[int, int]], placement: Placement, fresh: bool = False
) -> WorkerProcess:
    """Start a program with a control block and an arena for each of its ranks. fresh: with a single rank, load the
    libraries in its own process.
    """
    if len(fds) == 1:
        return WorkerProcess(name, setup, fds[0], placement, fresh=fresh)
    return WorkerGroup(name, setup, fds, placement)


def shares(cpus: frozenset[int], ranks: int) -> list[list[int]]:
    """The cores of each rank: the same number for each, and not shared if there are enough."""
    cores, each = sorted(cpus), max(len(cpus) // ranks, 1)
    return [[cores[(rank * each + n) % len(cores)] for n in range(each)] for rank in range(ranks)]


class WorkerGroup(WorkerProcess):
    """One program of one replicate with several ranks, or its ranks on one node; see WorkerProcess."""

    module = "aisp_mcp.judge.candidate.ranks"

    def __init__(
        self,
        name: str,
        setup: dict[str, Any],
        fds: Sequence[tuple[int, int]],
        placement: Placement,
        share: Share = WHOLE,
    ) -> None:
        self.share = share
        layouts = [Layout.from_json(setup["layout"]).of_rank(share.first + number) for number in range(len(fds))]
        pipes = [(os.pipe(), os.pipe()) for _ in fds[1:]]  # the first rank's are the base class's
        others = [(cmd[0], done[1], *pair) for (cmd, done), pair in zip(pipes, fds[1:], strict=True)]
        first = {**setup, "layout": layouts[0].to_json()}
        super().__init__(name, first, fds[0], placement, tuple(fd for four in others for fd in four))
        for (read, _), (_, write) in pipes:
            os.close(read)
            os.close(write)
        self._layouts = layouts
        self._commands = [self._command, *(cmd[1] for cmd, _ in pipes)]
        self._answering = [self._done, *(done[0] for _, done in pipes)]
        pairs = zip(fds[1:], layouts[1:], strict=True)
        self.controls = [self.control, *(ControlBlock(fd, layout) for (fd, _), layout in pairs)]
        self.memory = Watch(frozenset(inode(fd) for pair in fds for fd in pair), placement.folder)

    def prepare(self, setup: dict[str, Any]) -> None:
        cpus = shares(self.placement.cpus, len(self.controls))
        threads = int(self.placement.env["OMP_NUM_THREADS"])  # one per core, or the caller's number
        first, ranks, meets = self.share
        handles = setup.get("ipc") or [""] * (first + len(cpus))
        common = {"ranks": ranks or len(cpus), "here": len(cpus), "meets": meets, "collective_s": COLLECTIVE_S}
        for number, (control, command) in enumerate(zip(self.controls, self._commands, strict=True)):
            control.clear()
            own = {"layout": self._layouts[number].to_json(), "ipc": handles[first + number], "threads": threads}
            group = {"rank": first + number, "number": number, "cpus": cpus[number], **common}
            line = json.dumps({**setup, **own, "group": group}).encode()
            with suppress(BrokenPipeError):
                os.write(command, struct.pack("<I", len(line)) + line)

    def _send(self, data: bytes) -> None:
        for command in self._commands:
            with suppress(BrokenPipeError):
                os.write(command, data)

    def _pin(self, tasks: list[int]) -> None:
        """Resume the threads on their current cores: each rank has already bound itself."""
        prefer(tasks)

    def _at_home(self) -> set[int]:
        return os.sched_getaffinity(self.pid)

    def _says(self, within_s: float = 0.0) -> bool:
        return bool(_polled(self._answering, within_s))

    def _refuse_early_answers(self) -> None:
        pipes = self._answering[: len(self.controls)]
        for number in (pipes.index(fd) for fd in _polled(pipes, 0.0)):
            if os.read(pipes[number], 1):
                raise WorkerGone("forged", f"{self.name}, {self._called(number)}, answered before it was asked")

    def _await(self, expected: bytes, deadline_s: float, seen: Seen | None = None) -> float:
        """Return the parent's clock when the expected byte has arrived from every rank. Raises WorkerGone."""
        begin, missing = time.monotonic(), {fd: number for number, fd in enumerate(self._answering)}
        end = begin + deadline_s
        while missing:
            self._waiting_from = own_delay()
            polled = _polled(missing, max(end - time.monotonic(), 0.0))
            if not polled:
                late = ", ".join(map(self._called, missing.values()))
                raise WorkerGone("hang", f"{self.name}: no answer of {late} within {end - begin:.1f} s")
            for fd in polled:
                self._expect(expected, missing.pop(fd))
            if expected == DONE:
                end = min(end, time.monotonic() + LAST_RANK_S)
        return seen() if seen else clock()

    def _called(self, number: int) -> str:
        """Name of the process that answers on this pipe, for messages."""
        return f"rank {self.share.first + number}"

    def _expect(self, expected: bytes, number: int) -> None:
        byte, text = os.read(self._answering[number], 1), self.controls[number].read_text()
        if byte == expected:
            return
        name = f"{self.name}, {self._called(number)},"
        if byte == SHARED:
            raise WorkerGone("shares_input", f"{name} returned outputs that share memory", text)
        raise WorkerGone("raised", *raised(name, text)) if byte else WorkerGone("crashed", f"{name} ended", text)

    def _durations_ns(self, count: int) -> list[int]:
        """For each call, the longest duration over all ranks."""
        return [max(of_call) for of_call in self._of_calls(count)]

    def _of_calls(self, count: int) -> Iterator[tuple[int, ...]]:
        """For each call, the durations of the ranks."""
        return zip(*(control.durations[:count] for control in self.controls), strict=True)

    def _ended(self, count: int, elapsed_s: float, ran_s: float, before: Account) -> RoundTiming:
        timing = super()._ended(count, elapsed_s, ran_s, before)
        account = replace(timing.account, processes=timing.account.processes - len(self.controls) + 1)
        apart = [max(of_call) - min(of_call) for of_call in self._of_calls(count)]
        return replace(timing, account=account, apart_ns=apart)

    def close(self) -> None:
        """End the whole tree. A second call does nothing."""
        if self.output.closed:
            return
        super().close()
        for fd in (*self._commands[1:], *self._answering[1 : len(self.controls)]):
            os.close(fd)


def _polled(fds: Sequence[int] | dict[int, int], within_s: float) -> list[int]:
    """The pipes that have data, or whose writer is gone."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(1000 * within_s)]
