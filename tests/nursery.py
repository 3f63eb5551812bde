"""A process that has imported what commands, servers and jobs import, and forks one for each request (forks.py).

A fork looks like a new interpreter: its arguments and variables, in /proc too, working folder, descriptors, signals,
session and module search path. Other than one, it has loaded all shipped tools and those of the tests that it names.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import forks
import tool_modules

ALL = ("aisp_mcp.jobs.tracing", "aisp_mcp.jobs.supervisor", "aisp_mcp.server.worker", "aisp_mcp.jobs.manager")
SERVERS = ("aisp_mcp.front.mcp.stdio", "aisp_mcp.front.http.serve", "aisp_mcp.front.subprocess_calls")
COMMANDS = (
    *(f"aisp_mcp.front.cli.{name}" for name in ("run", "listing", "render", "aliases")),
    *(f"aisp_mcp.front.dashboard.{name}" for name in ("command", "serve")),
)
LOADS = {"aisp_mcp": SERVERS, "aisp_mcp.front.cli.main": COMMANDS, "pytest": ("pytest",), forks.SUPERVISOR: ()}
TOOLS = {"front_tools": "front", "job_tools": "jobs"}  # modules of the tests' tools, and their folders
Channels = dict[int, socket.socket]  # by pid or descriptor


def main() -> NoReturn:
    """Fork until nobody needs it any more. Standard input is the socket that listens."""
    listener, forks._socket = socket.socket(fileno=os.dup(0)), sys.argv[1]
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.chdir("/")
    del sys.path[0]  # this folder
    readable, writable = os.pipe2(os.O_NONBLOCK)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # its default, or ignored for all in the background
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    _load_all()
    children: Channels = {}
    users: Channels = {}
    with selectors.DefaultSelector() as selector:
        selector.register(readable, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if readable in ready:
                os.read(readable, 4096)
                _report(children)
            for fd in users.keys() & ready:  # it has ended
                selector.unregister(users.pop(fd))
                if not users:
                    shutil.rmtree(Path(forks._socket).parent, ignore_errors=True)
                    os._exit(0)
            if listener.fileno() in ready:
                channel = listener.accept()[0]
                data, fds, _, _ = socket.recv_fds(channel, 1 << 20, 3)
                if data == forks.STAY:
                    users[channel.fileno()] = channel
                    selector.register(channel, selectors.EVENT_READ)
                elif data:
                    _fork({**json.loads(data), "interrupt": interrupt}, fds, channel, children)


def _load_all() -> None:
    from aisp_mcp.records import Params, Record
    from aisp_mcp.server import registry
    from aisp_mcp.server.dispatch import input_schema, load_catalog
    from aisp_mcp.settings import Settings

    os.posix_spawn = forks.spawning(forks.SUPERVISOR, forks.STANDBY)
    load_catalog(Settings.from_env())
    _load(ALL)
    for name, folder in TOOLS.items():
        with mock.patch.object(sys, "path", [str(Path(__file__).parent / folder), *sys.path]):
            tool_modules.imported(name)
    for tool in registry.tools():
        input_schema(tool)
    records: list[Any] = [Record, Params]
    for record in records:
        records += record.__subclasses__()
        record.model_rebuild()


def _load(modules: tuple[str, ...]) -> None:
    for name in modules:
        importlib.import_module(name)
    if "aisp_mcp.front.dashboard.site" in sys.modules:
        _compile_templates()
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()  # a collection in a fork would write to every object and so copy every page


def _compile_templates() -> None:
    from aisp_mcp.front.dashboard import site

    for page in site.PAGES:
        site._environment().get_template(f"{page}.html.j2")


def _report(children: Channels) -> None:
    """Tell who asked for it how a fork has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with children.pop(pid) as channel, contextlib.suppress(OSError):  # nobody waits
            channel.send(str(status).encode())


def _fork(request: dict[str, Any], fds: list[int], channel: socket.socket, children: Channels) -> None:
    """Answer a request with a fork's pid, or 0 where it has to be a new interpreter."""
    pid = 0
    if _can_be(request):
        if missing := tuple(name for name in LOADS.get(request["words"][0], ()) if name not in sys.modules):
            _load(missing)
        pid = os.fork()
        if pid == 0:
            _become(request, fds)
        children[pid] = channel
    for fd in fds:
        os.close(fd)
    with contextlib.suppress(OSError):  # it has given up
        channel.send(str(pid).encode())


def _can_be(request: dict[str, Any]) -> bool:
    """Return True if an interpreter with these variables would be like this one, and /proc has room for them."""

    def at_start(env: Any) -> dict[str, str]:
        return {name: env[name] for name in env if name.startswith(forks.AT_START) and name != "PYTHONPATH"}

    room = all(len(data) <= end - begin for begin, end, data in _shown(request))
    return room and at_start(request["env"]) == at_start(os.environ)


def _shown(request: dict[str, Any]) -> list[tuple[int, int, bytes]]:
    """Places where the kernel reads /proc/PID/cmdline and environ, with the bytes that a fork shows there."""
    with open("/proc/self/stat") as file:
        places = list(map(int, file.read().rpartition(")")[2].split()[45:49]))
    env = [f"{name}={value}" for name, value in request["env"].items()]
    data = [b"".join(os.fsencode(text) + b"\0" for text in texts) for texts in (request["argv"], env)]
    return [(*places[:2], data[0]), (*places[2:], data[1])]


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run the module of a request as __main__, as a new interpreter would."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, request["interrupt"])
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    env, words = request["env"], request["words"]
    for begin, end, data in _shown(request):
        ctypes.memmove(begin, data.ljust(end - begin, b"\0"), end - begin)
    os.environ.clear()
    os.environ.update(env)
    paths = env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH") else []
    first = [] if request["safe"] else ["" if request["flag"] == "-c" else os.getcwd()]
    sys.path[:0] = [*first, *map(os.path.abspath, paths)]
    sys.argv[:], sys.orig_argv[:] = words, request["argv"]
    for name in TOOLS.keys() & env.get("AISP_TOOL_MODULES", "").split(","):
        tool_modules.register(name)
    code: Any = 0
    try:
        if request["flag"] == "-c":
            sys.argv[0] = "-c"
            exec(words[0], {"__name__": "__main__"})
        elif words[0] == forks.SUPERVISOR:
            _supervise()
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    _end(code)


def _supervise() -> None:
    """Run a job, whose worker is a fork too."""
    from aisp_mcp.jobs import supervisor
    from aisp_mcp.server import worker

    supervisor.main(worker.run)


def _end(code: Any) -> NoReturn:
    """End as an interpreter does, but without freeing what it shares with others."""
    threading._shutdown()
    atexit._run_exitfuncs()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    main()
