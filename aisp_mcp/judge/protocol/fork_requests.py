"""Requests to a process that forks others (candidate/forks.py), over a socket, with descriptors."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

MODULE = "aisp_mcp.judge.candidate.forks"
LOADED, UNSEALED = b"L", b"U"  # its first answer
OPTIONAL = "--"  # among its arguments: modules that follow may be missing
FDS_AT_ONCE = 200  # the kernel passes at most 253


def send(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """Send a request with descriptors. numbers, of the request: one for each of them."""
    text = json.dumps(request).encode()
    channel.sendall(len(text).to_bytes(4, "little") + text)
    for begin in range(0, len(fds), FDS_AT_ONCE):
        socket.send_fds(channel, [b"F"], list(fds[begin : begin + FDS_AT_ONCE]))


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request and its descriptors; None when the other end is closed, even in the middle of a request."""
    size = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "little")
    text = channel.recv(size, socket.MSG_WAITALL) if size else b""
    if not text or len(text) < size:
        return None
    request: dict[str, Any] = json.loads(text)
    fds: list[int] = []
    while len(fds) < len(request.get("numbers", ())):
        byte, some, _, _ = socket.recv_fds(channel, 1, FDS_AT_ONCE)
        if not byte:
            return None
        fds += some
    return request, fds
