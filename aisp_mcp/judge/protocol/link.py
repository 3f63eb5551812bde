"""Messages between the parent and a relay on another node: JSON followed by binary data, over one TCP connection.

The relay opens the connection and authenticates by a secret that it was started with. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.shared_memory import map_file

HEADER = struct.Struct("<IQ")  # bytes of the JSON, and of the data that follows
SECRET = 64  # hexadecimal digits
PIECE_S, SECRET_S = 60.0, 5.0  # at most, for the next bytes of a started message


class LinkLost(Exception):
    """The other end is gone, or did not answer in time."""


class Link:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PIECE_S)
        self.address: str = connection.getsockname()[0]  # of this end

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], parts: Sequence[memoryview | bytes] = ()) -> None:
        """Send a message, and the bytes of all parts one after another. Raises LinkLost."""
        text = json.dumps(message).encode()
        try:
            self._socket.sendall(HEADER.pack(len(text), sum(map(len, parts))) + text)
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise LinkLost(f"it cannot be written to: {error}") from error

    def receive(self, within_s: float | None = None) -> tuple[dict[str, Any], memoryview]:
        """Wait for a message, without a time limit by default. Raises LinkLost."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(None if within_s is None else 1000 * max(within_s, 0.0)):
            raise LinkLost(f"no message within {within_s:.0f} s")
        size, more = HEADER.unpack(self._exactly(HEADER.size))
        return json.loads(bytes(self._exactly(size))), self._exactly(more)

    def _exactly(self, count: int) -> memoryview:
        data, done = memoryview(bytearray(count)), 0
        while done < count:
            try:
                got = self._socket.recv_into(data[done:])
            except OSError as error:
                raise LinkLost(f"it cannot be read from: {error}") from error
            if not got:
                raise LinkLost("it closed the connection")
            done += got
        return data

    def close(self) -> None:
        self._socket.close()


def connect(host: str, port: int, secret: str) -> Link:
    """Connect as a relay. Raises OSError."""
    connection = socket.create_connection((host, port), PIECE_S)
    connection.sendall(secret.encode())
    return Link(connection)


def accept(listener: socket.socket, secrets: Mapping[str, str], within_s: float) -> tuple[str, Link]:
    """Accept a relay that knows a secret; return its name and the connection. Others are refused. Raises LinkLost."""
    end = time.monotonic() + within_s
    while (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(SECRET_S)
            with suppress(OSError):
                received = connection.recv(SECRET, socket.MSG_WAITALL)
                for name, secret in secrets.items():
                    if hmac.compare_digest(received, secret.encode()):
                        return name, Link(connection)
            connection.close()
    raise LinkLost("no word")


class Mirror:
    """Arenas of some ranks as bytes to send: static tensors, and the frames of the first calls."""

    def __init__(self, fds: Sequence[int], layouts: Sequence[Layout]) -> None:
        self._layouts = layouts
        self._maps = [memoryview(map_file(fd, layout.arena_bytes)) for fd, layout in zip(fds, layouts, strict=True)]

    def parts(self, calls: int, params: bool = False) -> list[memoryview]:
        """Views of the frames of `calls` calls, rank by rank. params: include the static tensors."""
        return [
            whole[0 if params else layout.params_bytes : layout.params_bytes + calls * layout.frame]
            for whole, layout in zip(self._maps, self._layouts, strict=True)
        ]

    def fill(self, data: memoryview, calls: int, params: bool = False) -> None:
        """Receive what parts() of the same arguments returned on the other node. Raises LinkLost if sizes differ."""
        parts, begin = self.parts(calls, params), 0
        if len(data) != sum(map(len, parts)):
            raise LinkLost(f"it sent {len(data)} bytes of tensors instead of {sum(map(len, parts))}")
        for part in parts:
            part[:] = data[begin : begin + len(part)]
            begin += len(part)
