"""Processes with their libraries loaded: python -m aisp_mcp.judge.candidate.forks FD SEALED CPUS MODULE...

With FD:NAME:SECONDS instead of FD, the socket listens under that name in its working folder until nobody has connected
for that long, or the name is removed. Each caller that connects is served by a fork of it, which is the process
described here. Such a fork can be handed on to the next caller, with the processes that it has started and descriptors
for them.

Loading torch takes one and a half seconds of processor time, and a comparison needs a dozen fresh processes. This
process loads it and the MODULEs once, and others if it is asked to, runs no program, and forks for each request. The
fork gets the descriptors, environment, cores and isolation that a new process would have been given (forked.py), and
only then runs a module. The server ends when the other end of the socket FD is closed.

SEALED: with 1, it re-executes itself from a read-only mount of the interpreter's file. /proc/self/exe of a fork leads
to the mount that it was executed from, bypassing its own mounts, so the interpreter's owner could change the file's
permissions. CPUS: the cores on which it loads. Modules that follow `--` may be missing. Libraries count the cores once:
OpenBLAS never takes more threads, and with more threads than cores, those of OpenMP wait in the kernel instead of
spinning.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import math
import os
import random
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aisp_mcp.judge.protocol.fork_requests import LOADED, MODULE, OPTIONAL, UNSEALED, receive, send
from aisp_mcp.process import python, sandbox, sockets, tree

LOOK_S = 1.0  # seconds between checks that the socket is still there
MOST_WAIT_S = 600.0  # for the next caller: what waits may hold memory of a GPU
CANDIDATES, ISOLATION = "aisp_mcp.judge.candidate.", "aisp_mcp.process"  # modules
LAST_FD = 1 << 20  # no system sets a higher limit
GAPS: list[bytearray] = []  # of random size in each copy's heap, to vary the memory layout


def main() -> None:
    """Load the libraries, report that, and answer requests."""
    where, sealed, cpus, *modules = sys.argv[1:]
    fd, _, listens = where.partition(":")
    name, _, seconds = listens.partition(":")
    channel = socket.socket(fileno=int(fd))
    if int(sealed):
        if not sandbox.seals():
            _refuse(channel, name)
            return
        os.set_inheritable(int(fd), True)
        os.execv(sys.executable, python.module(MODULE, where, "0", cpus, *modules))
    _load(cpus, modules)
    if listens:
        _listen(channel, name, float(seconds))
        return
    channel.sendall(LOADED)
    _answer(channel, math.inf)


def _refuse(channel: socket.socket, name: str) -> None:
    """Report that no fork can be sealed; with a name, to all who have connected, and let no more connect."""
    if not name:
        channel.sendall(UNSEALED)
        return
    os.unlink(name)
    channel.setblocking(False)
    with suppress(OSError):
        while True:
            with channel.accept()[0] as caller:
                caller.sendall(UNSEALED)


def _load(cpus: str, words: list[str]) -> None:
    gc.disable()  # collections while modules are loaded find little, and take a quarter of the time
    end = words.index(OPTIONAL)
    modules, also = words[:end], words[end + 1 :]
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a module that asks for a GPU must not spoil CUDA for the forks
    _import(["torch"])
    for name in modules:
        importlib.import_module(name)
    _import(also)
    _prepare_to_fork()


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with suppress(Exception):  # the process that needs a missing module reports it
            importlib.import_module(name)


def _prepare_to_fork() -> None:
    _end_nvml()
    gc.enable()
    gc.freeze()  # a collection in a fork would write to every object and so copy every page


def _end_nvml() -> None:
    """Undo each nvmlInit of an imported module. A fork closes NVML's descriptors, and NVML would then count no GPU:
    torch 2.11 asks it even where CUDA is initialized, and keeps the answer.
    """
    with suppress(OSError):  # not loaded
        nvml = ctypes.CDLL("libnvidia-ml.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        while nvml.nvmlShutdown() == 0:
            pass


def _answer(channel: socket.socket, end_s: float) -> None:
    while received := receive(channel):
        request, fds = received
        if "hand on" in request:
            channel.close()
            channel = _handed_on(request, fds, end_s)
        else:
            _serve(channel, request, fds)


def _handed_on(request: dict[str, Any], fds: list[int], end_s: float) -> socket.socket:
    """The connection of the next caller of this user, who gets the descriptors. The first one listens under the name;
    the process ends when that name is removed, or when nobody comes in time.
    """
    name, handle = request["hand on"], os.pidfd_open(request["pid"])
    end_s = min(end_s, time.monotonic() + MOST_WAIT_S)
    with socket.socket(fileno=fds[0]) as listener:
        channel = _next_caller(listener, name, end_s)
        if channel is None:
            os._exit(0)
        os.unlink(name)  # while it listens: whoever finds it deaf removes it
    _introduce(channel)
    send(channel, {**request, "numbers": [0] * len(fds)}, [handle, *fds[1:]])
    for fd in (handle, *fds[1:]):
        os.close(fd)
    return channel


def _next_caller(listener: socket.socket, name: str, end_s: float) -> socket.socket | None:
    """The connection of the next caller of this user; None when the time is over or the name is removed."""
    while time.monotonic() < end_s and os.path.exists(name):
        if select.select([listener], [], [], LOOK_S)[0]:
            channel, _ = listener.accept()
            if sockets.caller(channel) == os.getuid():
                return channel
            channel.close()
    return None


def _introduce(channel: socket.socket) -> None:
    """Tell a caller that this process has loaded, and give it a handle to end it."""
    handle = os.pidfd_open(os.getpid())
    socket.send_fds(channel, [LOADED], [handle])
    os.close(handle)


def _listen(listener: socket.socket, name: str, seconds: float) -> None:
    """Fork for each caller of this user, with a handle to end the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while channel := _next_caller(listener, name, time.monotonic() + seconds):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _introduce(channel)
            _answer(channel, time.monotonic() + seconds)
            os._exit(0)
        channel.close()
    with suppress(OSError):
        os.unlink(name)  # callers start their own, as those who have just connected do


def _serve(channel: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
    if "ended" in request:
        status = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
        channel.sendall(status.to_bytes(4, "little", signed=True))
        return
    if "load" in request:
        if new := [name for name in request["load"] if name not in sys.modules]:
            _import(new)
            _prepare_to_fork()
        return
    pid = os.fork()
    if pid == 0:
        _become(request, fds)
    for fd in fds:
        os.close(fd)
    handle = os.pidfd_open(pid)
    socket.send_fds(channel, [pid.to_bytes(4, "little")], [handle])
    os.close(handle)


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Enter the placement that the request describes, and run the module. Never returns."""
    try:
        os.setsid()
        _place(fds, request["numbers"])
        if request["first_to_die"]:  # its child processes inherit that
            tree.first_to_die(os.getpid())
        os.sched_setaffinity(0, request["cpus"])
        os.environ.clear()
        os.environ.update(request["env"])
        tempfile.tempdir = None  # a library may have asked for it in another environment
        os.chdir(request["cwd"])
        if torch := sys.modules.get("torch"):
            torch.default_generator.seed()  # otherwise all forks would draw the same numbers
        GAPS.extend(bytearray(random.randrange(1, 1 << 14)) for _ in range(random.randrange(1 << 6)))
        sys.argv = request["argv"]
        code = sandbox.confine(request["spec"], lambda: _run(request["argv"][0]))
    except BaseException:
        traceback.print_exc()
        code = 126
    os._exit(code)


def _place(fds: list[int], numbers: list[int]) -> None:
    """Move the descriptors to these numbers, and close all others."""
    above = max([*fds, *numbers]) + 1  # where they are parked: numbers beyond this process's limit are refused
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds]
    os.closerange(0, above)
    for fd, number in zip(parked, numbers, strict=True):
        os.dup2(fd, number)
    os.closerange(above, LAST_FD)


def _forget_isolation() -> None:
    """Leave a candidate's process with the modules that it would have if it had not been forked: the code that has
    isolated it has done its work.
    """
    for name in [name for name in sys.modules if name.startswith(ISOLATION)]:
        del sys.modules[name]


def _run(name: str) -> int:
    """Run a module's main() as `python -m` would; return its exit code."""
    if name.startswith(CANDIDATES):
        _forget_isolation()
    try:
        importlib.import_module(name).main()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()


if __name__ == "__main__":
    main()
