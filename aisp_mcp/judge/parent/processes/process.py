"""The parent's handle on one untrusted worker: start it, stop it, run rounds against the parent's clock, and read
outputs out of its memory while it is stopped, by process_vm_readv(2): nothing runs there, and it cannot refuse.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EFAULT
from typing import Any

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.processes import placement
from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.parent.processes.confined import Confined, Placement, WorkerGone, prefer, raised, with_reason
from aisp_mcp.judge.parent.timing.memory.accounting import Watch, inode
from aisp_mcp.judge.protocol.clock import clock, own_delay
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import DONE, ISOLATED, LOADED, QUEUED, READY, SHARED
from aisp_mcp.judge.protocol.shared_memory import COPIED_NS, ControlBlock
from aisp_mcp.process import isolation

LOOK_S = 1.0  # seconds between checks that a silent worker can still answer
STILL_S = 50e-6  # of processor time, which the kernel may record a little after it stops a process
# Share of its time that a worker may compute between rounds beyond that. Once in hundreds of rounds, half a
# millisecond is recorded late on a busy machine; a gain of this size stays below any margin.
OUTSIDE_SHARE, MIN_OUTSIDE_S = 0.02, 0.001
Seen = Callable[[], float]  # lets another process see an answer before it is read, and returns when that was done


class WorkerProcess(Confined):
    """One program of a replicate: a fresh process, stopped except during its rounds.

    others: descriptors of further ranks, which this program closes (group.py). fresh: load the libraries in this
    process, where that counts, instead of forking one that has them (candidate/forks.py).
    """

    module = "aisp_mcp.judge.candidate.main"
    # Seconds of the round during which other processes used this process's core, before its go and after the answer.
    _late_s = _waiting_from = 0.0
    _watching = _may_watch = False

    def __init__(
        self,
        name: str,
        setup: dict[str, Any],
        fds: tuple[int, int],
        placement: Placement,
        others: tuple[int, ...] = (),
        fresh: bool = False,
    ) -> None:
        self.name = name
        self.control = ControlBlock(fds[0], Layout.from_json(setup["layout"]))
        command_read, self._command = os.pipe()
        self._done, done_write = os.pipe()
        inherited = (command_read, done_write, *fds, *others)
        # The path is in argv for the isolation, which shows the folders named there and hides the rest of /tmp.
        argv = [sys.executable, "-P", "-m", self.module, *map(str, inherited), setup["path"]]
        super().__init__(argv, placement, inherited, fresh=fresh)
        os.close(command_read)
        os.close(done_write)
        self._freezes = setup["freeze"]
        self._may_watch = setup["device"] == "cpu" and setup["freeze"]
        self.pid = self.process.pid
        self._first: int | None = None
        self._known = {self.pid: 0.0}
        self.memory = Watch(frozenset(inode(fd) for fd in fds), placement.folder)
        # Seconds that it may still compute while stopped. A baseline is the specification and gains nothing: time
        # that the kernel records late must not end an honest comparison.
        self._allowed_s = math.inf if setup["baseline"] else MIN_OUTSIDE_S

    def prepare(self, setup: dict[str, Any]) -> None:
        """Send the worker its setup, once its memory is allocated and no other worker uses it."""
        self.control.clear()
        line = json.dumps(setup).encode()
        self._send(struct.pack("<I", len(line)) + line)

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._command, data)

    def loaded(self, within_s: float = 0.0) -> bool:
        """Wait until the worker has loaded its libraries, before it gets its set-up, or has ended."""
        return self._says(within_s)

    def _says(self, within_s: float = 0.0) -> bool:
        """Wait for data in the pipe; also True if its writer is gone."""
        poll = select.poll()
        poll.register(self._done, select.POLLIN)
        return bool(poll.poll(1000 * within_s))

    def ready(self, deadline_s: float) -> None:
        """Wait for L and R, then stop the worker. Raises WorkerGone."""
        self._await(LOADED, deadline_s)
        self._await(READY, deadline_s)
        self._adopt()
        self.freeze()

    def await_loaded(self, deadline_s: float) -> None:
        """Wait for L; at that point, none of the program has run. Raises WorkerGone."""
        self._await(LOADED, deadline_s)
        self._adopt()

    def _adopt(self) -> None:
        """Find the processes' ids, and bind them to their cores."""
        self.pid = isolation.program_pid(self.process.pid, self.placement.level)
        self._first = isolation.first_pid(self.process.pid, self.placement.level)
        self._pin(proc.tasks(self._everyone()))
        self._known = proc.spent(self._everyone())  # from here on, without the isolation's own processes

    def _pin(self, tasks: list[int]) -> None:
        """Assign the threads to their cores, and give them precedence there."""
        placement.bind(tasks, self.placement.cpus)
        prefer(tasks)

    def _everyone(self) -> list[int]:
        """The program and everything it has started.

        Orphans belong to the first process of the namespace; below L2 there is none, and only the tree is known.
        """
        return proc.tree(self._first)[1:] if self._first else proc.tree(self.pid)

    def _answers(self, deadline_s: float) -> bool:
        """Wait for any answer from the worker. Raises WorkerGone if it stopped itself or left its cores."""
        poll, end = select.poll(), time.monotonic() + deadline_s
        poll.register(self._done, select.POLLIN)
        while not self._heard(poll, max(end - time.monotonic(), 0.0)):
            if self._watching:
                self._refuse_other_cores(self._everyone())
            if self.memory.sampling:
                self.memory.sample(self._everyone())
            if proc.state(self.pid) == "T":
                raise WorkerGone("hang", f"{self.name} stopped itself and cannot answer")
            if time.monotonic() >= end:
                return False
        return True

    def _heard(self, poll: select.poll, within_s: float) -> bool:
        """Wait until the worker answers, or until it is time to check on it."""
        self._waiting_from = own_delay()
        if self._watching:
            return placement.answers_before_next_look(self._done)
        return bool(poll.poll(0 if self.memory.sampling else 1000 * min(LOOK_S, within_s)))

    def _await(self, expected: bytes, deadline_s: float, seen: Seen | None = None) -> float:
        """Wait for the expected byte and return the result of seen(). Raises WorkerGone."""
        if not self._answers(deadline_s):
            raise WorkerGone("hang", f"{self.name} gave no answer within {deadline_s:.1f} s")
        if seen and self._freezes:
            proc.send([*self._known], signal.SIGSTOP)  # the others follow in freeze()
        at_s = seen() if seen else clock()
        byte = os.read(self._done, 1)
        if byte == expected:
            return at_s
        if byte == SHARED:
            message = f"{self.name} returned outputs that share memory"
            raise WorkerGone("shares_input", message, self.control.read_text())
        if byte:
            text = with_reason(self.control.read_text(), self.placement.folder)
            raise WorkerGone("raised", *raised(self.name, text))
        raise WorkerGone("crashed", f"{self.name} ended: {self._how_it_ended()}", self.control.read_text())

    def _refuse_early_answers(self) -> None:
        """Refuse data in the pipe before the command was sent. Raises WorkerGone."""
        if self._says() and os.read(self._done, 1):
            raise WorkerGone("forged", f"{self.name} answered before it was asked")

    def _how_it_ended(self) -> str:
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its channel but still runs"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code} without finishing"

    def freeze(self) -> float:
        """Stop all known processes, then the tree until no new one appears. Raises WorkerGone unstoppable.

        Returns the parent's clock when all known processes were stopped. A system call in progress, such as a long
        copy, finishes before its process stops, so a candidate that starts one after its answer pays for it. If unknown
        processes appeared, or some continued, the clock is from when all of them were stopped.
        """
        if not self._freezes:
            return clock()
        end, stood = time.monotonic() + 5.0, clock()
        running, stopped = [*self._known] or self._everyone(), list[int]()
        while set(running) - set(stopped):  # a stopped process starts no other
            proc.send(running, signal.SIGSTOP)
            if not proc.wait_stopped(running, max(end - time.monotonic(), 0.0)):
                raise WorkerGone("unstoppable", f"{self.name} does not stop on request")
            if not stopped:  # many threads make the walk slow
                stood, late_s = clock(), max(own_delay() - self._waiting_from, 0.0)
                self._late_s, self._known = self._late_s + late_s, proc.settled(running)
            stopped, running = running, self._everyone()
        proc.send(running, signal.SIGSTOP)  # a timer may have resumed it
        if self._stood_still(running):
            return stood
        self._known = proc.settled(running)
        return clock()

    def _stood_still(self, pids: list[int]) -> bool:
        """Return True if all processes are known and none has run, as a timer can make one, since its time was read."""
        late = self._known
        return all(pid in late and spent - late[pid] < STILL_S for pid, spent in proc.spent(pids).items())

    def refuse_work_outside(self) -> None:
        """Refuse new processes, and more than negligible computation, since all were stopped. Raises WorkerGone.

        Called before a round whose inputs are already in memory, and after its outputs are compared.
        """
        if not self._freezes:
            return
        now, known = proc.spent(self._everyone()), self._known
        late = sum(spent - known[pid] for pid, spent in now.items() if pid in known)
        self._allowed_s -= max(late - STILL_S, 0.0)
        if (fresh := len(now.keys() - known.keys())) or self._allowed_s < 0.0:
            what = f"{fresh} processes appeared, {1e3 * late:.2f} ms of a processor's time at last"
            raise WorkerGone("ran_outside", f"{self.name} ran while it should have been stopped: {what}")
        self._known = now

    @property
    def answers_at(self) -> str:
        """Path by which the verifier opens the pipe on which this worker answers."""
        return f"/proc/{os.getpid()}/fd/{self._done}"

    def run_round(
        self, count: int, deadline_s: float, bits: int = 0, at_done: Callable[[], object] | None = None
    ) -> RoundTiming:
        """Let the worker run `count` calls between two readings of the parent's clock. Raises WorkerGone.

        bits: of the protocol in candidate/main.py. at_done: called when the worker has answered, before it is stopped.
        """
        # The verifier hands over inputs of isolated calls by polling on a core that this process would take from it.
        self._watching = self._may_watch and not bits & ISOLATED
        begin, before = self._let_go(count | bits)
        self._await(DONE, deadline_s)
        self._watching = False
        if at_done is not None:
            at_done()
        elapsed_s = self.freeze() - begin
        return self._ended(count, elapsed_s, elapsed_s, before)

    def first_answer(
        self, setup: dict[str, Any], bits: int, deadline_s: float, at_done: Callable[[], object] | None, begin: float
    ) -> RoundTiming:
        """Load and prepare the program, and run one call on inputs that are already in memory. Raises WorkerGone.

        begin: the parent's clock when the process was started, or 0.0 for one that has loaded its libraries and is
        resumed here. bits and at_done: as in run_round().
        """
        fresh, before = bool(begin), Account()
        if not fresh:
            before, roaming = proc.account([*self._known]), self._at_home()
            begin = clock()
            placement.bind([self.pid], roaming)
        self.prepare(setup)
        self._send(struct.pack("<I", 1 | bits))
        if fresh:
            self.await_loaded(deadline_s)
        self._await(READY, deadline_s)
        self._await(DONE, deadline_s)
        if at_done is not None:
            at_done()
        elapsed_s = self.freeze() - begin
        return self._ended(1, elapsed_s, elapsed_s, before)

    def watched_round(self, count: int, deadline_s: float, bits: int, seen: Seen) -> RoundTiming:
        """Run a round that ends when seen() returns; the answer is left in the pipe for it. Raises WorkerGone."""
        begin, before = self._let_go(count | bits)
        elapsed_s = self._await(DONE, deadline_s, seen) - begin
        return self._ended(count, elapsed_s, self.freeze() - begin, before)

    def served_round(self, count: int, deadline_s: float, look: Callable[[], None], pause_s: float) -> RoundTiming:
        """Let the worker serve a trace of `count` requests while look() is called every pause_s. Raises WorkerGone."""
        begin, before = self._let_go(1)
        while not self._says():
            if clock() - begin > deadline_s:
                raise WorkerGone("hang", f"{self.name} has not served its requests within {deadline_s:.1f} s")
            look()
            time.sleep(pause_s)
        look()
        self._await(DONE, LOOK_S)
        elapsed_s = self.freeze() - begin
        return self._ended(count, elapsed_s, elapsed_s, before)

    def gated_round(
        self,
        count: int,
        deadline_s: float,
        bits: int,
        patience_s: float,
        write_inputs: Callable[[], bool],
        seen: Seen,
        still: Callable[[], bool] | None = None,
    ) -> RoundTiming | None:
        """Run a round whose calls wait on the device for a gate, which opens when their inputs are written: elapsed_s
        counts from there. Returns None, and the round does not count, if not all calls wait within patience_s or if
        write_inputs() returns False. still: called while the process is stopped and only its device works; may also
        return False. Raises WorkerGone.
        """
        begin, before = self._let_go(count | bits)
        shut = self._answers(patience_s)
        if shut:
            self._await(QUEUED, deadline_s)
        ready = shut and write_inputs()
        if ready and still:
            self.freeze()
        opened = clock()
        self.control.open_gate()
        if ready and still:
            ready = still()
            proc.send([*self._known], signal.SIGCONT)
        if not ready:
            self.control.end_handoff()
        if not shut:
            self._await(QUEUED, deadline_s)
        elapsed_s = self._await(DONE, deadline_s, None if still or not ready else seen) - opened
        timing = self._ended(count, elapsed_s, self.freeze() - begin, before)
        return timing if ready else None

    def _let_go(self, message: int) -> tuple[float, Account]:
        """Begin a round: take the accounts, then the parent's clock, and resume. Raises WorkerGone."""
        self._refuse_early_answers()
        self.refuse_work_outside()
        before = proc.account([*self._known])
        if self.memory.sampling:
            self.memory.begin([*self._known])
        roaming, delay_s = self._at_home(), own_delay()
        begin = self._begin()
        proc.send([*self._known], signal.SIGCONT)
        placement.bind([self.pid], roaming)
        self._late_s = max(own_delay() - delay_s, 0.0)
        self._send(struct.pack("<I", message))
        return begin, before

    def _begin(self) -> float:
        """The parent's clock at the start of a round; all are stopped. Over nodes, all start here (spread.py)."""
        return clock()

    def _ended(self, count: int, elapsed_s: float, ran_s: float, before: Account) -> RoundTiming:
        """The round that has just ended. ran_s: how long the worker ran."""
        self._allowed_s += OUTSIDE_SHARE * ran_s
        self._refuse_other_cores([*self._known])
        if self.memory.sampling:
            self.memory.end([*self._known])
        spent = proc.account([*self._known]).since(before)
        return RoundTiming(
            count, elapsed_s, self._durations_ns(count), spent, self.control.stats[COPIED_NS] / 1e9, self._late_s
        )

    def _durations_ns(self, count: int) -> list[int]:
        """Nanoseconds of each call by the worker's own clock."""
        return list(self.control.durations[:count])

    def _at_home(self) -> set[int]:
        """Let the first thread wake up on its core, and return the cores it may move to from there.

        A thread stays where it woke up as long as it can. If other programs use some cores of a machine, cores differ
        by more than candidates do, so the workers of a replicate start on the same core and are compared there.
        """
        placement.bind([self.pid], {self.placement.core})
        return set(self.placement.cpus)

    def _refuse_other_cores(self, pids: list[int]) -> None:
        """Check that no thread may leave its cores; of baselines too, so that rounds are alike. Raises WorkerGone."""
        foreign = placement.foreign_cores(pids, self.placement.cpus)
        if foreign and self._freezes and math.isfinite(self._allowed_s):
            raise WorkerGone("left_cores", f"{self.name} ran on cores that it was not assigned: {foreign}")

    def settle_memory(self) -> int:
        """Take the present footprint, in bytes, as that of the prepared program; see watch_memory()."""
        return self.memory.settle([*self._known])

    def watch_memory(self, rest: int, sampling: bool) -> None:
        """From here on, count the bytes that calls add to `rest`. sampling: measure during every round, which disturbs
        its time; otherwise only the kernel's high-water mark over all rounds counts.
        """
        self.memory.rest, self.memory.sampling = rest, sampling
        self.memory.begin([*self._known])

    def added_memory(self) -> int:
        """The most bytes that a round since watch_memory() added."""
        if not self.memory.sampling:
            self.memory.end([*self._known])
        return self.memory.added

    def close(self) -> None:
        """End the whole tree. A second call does nothing."""
        if self.output.closed:
            return
        super().close()
        for fd in (self._command, self._done):
            os.close(fd)


MAX_IOVECS = 512  # spans of memory per system call; the kernel's limit is 1024
DEADLINE_S = 20.0  # a read never ends if a stopped process would have to supply the pages


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def fetch(pid: int, control: ControlBlock, arena: mmap.mmap, calls: Sequence[int]) -> None:
    """Copy the outputs of these calls of the last round into the arena, from the addresses in the control block.

    Raises OSError: EPERM or ENOSYS if the kernel does not allow it, EFAULT if the memory is not readable.
    """
    places = [place for call in calls for place in control.layout.place_outputs(call)]
    spans = [
        (address, at, spec.nbytes)
        for address, (spec, at) in zip(control.addresses_of(calls), places, strict=True)
        if spec.nbytes
    ]
    read(pid, spans, arena)


def is_readable(pid: int) -> bool:
    """Return True if the kernel lets this process read that one's memory."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            begin = int(next(iter(file)).partition("-")[0], 16)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            read(pid, [(begin, 0, 8)], page)
    except (OSError, StopIteration):
        return False
    return True


def read(pid: int, spans: Sequence[tuple[int, int, int]], into: mmap.mmap) -> None:
    """Copy spans (address there, offset here, bytes) of a stopped process into the mapping. Raises OSError as fetch()
    does.

    If a read takes longer than DEADLINE_S, the process is killed, which ends it.
    """
    waiting = threading.Timer(DEADLINE_S, proc.send, ([pid], signal.SIGKILL))
    waiting.start()
    try:
        for first in range(0, len(spans), MAX_IOVECS):
            _read_some(pid, spans[first : first + MAX_IOVECS], into)
    finally:
        waiting.cancel()


def _read_some(pid: int, spans: Sequence[tuple[int, int, int]], into: mmap.mmap) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    here = ctypes.c_char.from_buffer(into)  # must live as long as the address is used
    begin, count = ctypes.addressof(here), ctypes.c_ulong(len(spans))
    local = (_IoVec * len(spans))(*[_IoVec(begin + offset, size) for _, offset, size in spans])
    remote = (_IoVec * len(spans))(*[_IoVec(address, size) for address, _, size in spans])
    done = libc.process_vm_readv(pid, local, count, remote, count, ctypes.c_ulong(0))
    if done != sum(size for _, _, size in spans):
        code = ctypes.get_errno() if done < 0 else EFAULT
        raise OSError(code, os.strerror(code))
