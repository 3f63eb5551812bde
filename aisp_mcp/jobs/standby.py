"""A process that has loaded what a job imports, and forks a supervisor for each job.

A job starts two interpreters and imports its tool: about a second, which is more than many comparisons take. Where many
short jobs follow one another, this process pays for that once. It listens at a socket in the store, and whoever starts
a job asks it first (starting.py, ready.py). It runs no job itself, so no job sees what an earlier one has changed: each
supervisor is a fork of it, and each worker a fork of that supervisor.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress

from aisp_mcp.jobs import supervisor
from aisp_mcp.jobs.executors.local import MARK
from aisp_mcp.jobs.ready import SEND_S
from aisp_mcp.process import sockets, tree

LOOK_S = 1.0  # seconds between checks that it is still needed


def main() -> None:
    """Load, then fork for each request until it is no longer needed. Standard input is the socket that listens."""
    path, folder, seconds, tool, *modules = sys.argv[1:]
    listener = socket.socket(fileno=0)
    os.chdir("/")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        importlib.import_module("aisp_mcp.server.worker").load(tool, modules)
        gc.collect()
        gc.freeze()  # a collection in a fork would write to every object and so copy every page
        end_s = time.monotonic() + float(seconds)
        while time.monotonic() < end_s and os.path.exists(folder) and os.path.exists(path):
            if select.select([listener], [], [], LOOK_S)[0]:
                _accept(listener)
                end_s = time.monotonic() + float(seconds)
    finally:
        with suppress(OSError):
            os.unlink(path)


def _accept(listener: socket.socket) -> None:
    channel, _ = listener.accept()
    with channel:
        if sockets.caller(channel) == os.getuid() and os.fork() == 0:
            os.dup2(1, 0)  # in place of the listener
            _become_supervisor(channel)


def _become_supervisor(channel: socket.socket) -> None:
    """Run the job that the request names. Never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        channel.settimeout(SEND_S)
        request = json.loads(b"".join(iter(lambda: channel.recv(1 << 16), b"")))
        channel.close()
        tree.mark(MARK, request["job"])
        os.environ.clear()
        os.environ.update(request["env"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.close(log)
        sys.argv = ["supervisor", request["job"]]
        supervisor.main(importlib.import_module("aisp_mcp.server.worker").run)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


if __name__ == "__main__":
    main()
