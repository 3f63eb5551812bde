"""Sockets with a name in a folder, whose path may be longer than the kernel accepts for a socket; free ports."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def listening(path: Path) -> socket.socket:
    """A new socket that listens there. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            listener.bind(name)
        listener.listen()
        return listener
    except OSError:
        listener.close()
        raise


def free_port() -> int:
    """A port of this machine's loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def connected(path: Path, timeout_s: float | None = None) -> socket.socket | None:
    """A connection to the socket that listens there; None if none does."""
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(timeout_s)
    try:
        with _short(path) as name:
            channel.connect(name)
        return channel
    except OSError:
        channel.close()
        return None


def caller(channel: socket.socket) -> int:
    """The user of the process at the other end."""
    _, user, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
