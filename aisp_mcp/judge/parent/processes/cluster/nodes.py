"""Other nodes of a comparison: a relay on each, which the parent starts and talks to over one connection."""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from aisp_mcp import __version__
from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.options import Nodes
from aisp_mcp.judge.parent.processes.confined import WorkerGone
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.link import SECRET, Link, LinkLost, accept
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import wording
from aisp_mcp.process import python
from aisp_mcp.process.isolation import Level

MODULE = "aisp_mcp.judge.parent.processes.cluster.relay"
CONNECT_S, ANSWER_S, END_S = 120.0, 120.0, 5.0
PINGS = 20


class Node:
    """The parent's end of a relay. pending: a request is unanswered. level, cores, cpu: as its relay reports. cpus: of
    one program. round_trip_s: the usual seconds of one round trip.
    """

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name, self.pending, self.secret = name, False, secrets.token_hex(SECRET // 2)
        self._words, self._output = words, os.memfd_create("aisp-relay")
        self.link: Link
        self.level: Level = "L1"
        self.cores = self.cpus = 0
        self.cpu, self.round_trip_s = "", 0.0

    def start(self, address: str) -> None:
        """Start its relay, and pass it the secret so that no other user can read it. Raises Unavailable."""
        argv, output = [*self._words, *python.module(MODULE, address)], self._output
        try:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Unavailable("NODE_LOST", f"No relay can be started on {self.name}: {error}.") from error
        assert self.process.stdin
        with suppress(BrokenPipeError), self.process.stdin as its_in:
            its_in.write(f"{self.secret}\n".encode())

    def greet(self, link: Link) -> None:
        """Accept the connection, and read the relay's description of its node. Raises Unavailable."""
        self.link = link
        hello, _ = self.hear(ANSWER_S)
        if (version := hello["version"]) != __version__:
            raise self.lost(f"it has version {version}, not {__version__}")
        self.level, self.cores, self.cpu = hello["level"], hello["cores"], hello["cpu"]
        self.round_trip_s = statistics.median(self._ping() for _ in range(PINGS))

    def _ping(self) -> float:
        begin = clock()
        self.ask("ping")
        return clock() - begin

    def answers(self) -> bool:
        """Return True if the relay runs and no request is unanswered."""
        with suppress(Unavailable):
            if not self.pending:
                self.ask("ping")
                return True
        return False

    def open(self, **how: Any) -> None:
        """Make the relay drop its workers, allocate memory, and load libraries. Raises Unavailable."""
        self.cpus = self.ask("open", **how)["cpus"]

    def ask(self, verb: str, parts: Sequence[memoryview] = (), **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer. Raises WorkerGone, Unavailable."""
        self.post(verb, parts, **fields)
        return self.collect(ANSWER_S)[0]

    def post(self, verb: str, parts: Sequence[memoryview] = (), **fields: Any) -> None:
        """Send a request whose answer is collected later. Raises Unavailable."""
        self.pending = True
        self.tell({"verb": verb, **fields}, parts)

    def tell(self, message: dict[str, Any], parts: Sequence[memoryview] = ()) -> None:
        """Send a message that needs no answer. Raises Unavailable."""
        try:
            self.link.send(message, parts)
        except LinkLost as lost:
            raise self.lost(str(lost)) from lost

    def collect(self, within_s: float) -> tuple[dict[str, Any], memoryview]:
        """Return the answer to the last request. Raises WorkerGone, Unavailable."""
        answer = self.hear(within_s)
        self.pending = False
        return answer

    def hear(self, within_s: float) -> tuple[dict[str, Any], memoryview]:
        """Return the relay's next message. Raises WorkerGone for one of its ranks, Unavailable."""
        try:
            message, data = self.link.receive(within_s)
        except LinkLost as lost:
            raise self.lost(str(lost)) from lost
        if gone := message.get("gone"):
            self.pending = False
            raise WorkerGone(gone["code"], f"{gone['message']} (on {self.name})", gone["text"])
        if error := message.get("error"):
            self.pending = False
            raise Unavailable(error["code"], f"{self.name}: {error['message']}", error["hint"])
        return message, data

    def lost(self, why: str) -> Unavailable:
        end = os.fstat(self._output).st_size
        output = os.pread(self._output, 300, max(end - 300, 0)).decode("utf-8", "replace").strip()
        message = f"The relay on node {self.name} cannot continue: {why}." + (
            f" It printed: {output}" if output else ""
        )
        return Unavailable("NODE_LOST", message, "Its Python environment must be at the same path as here.")

    def close(self) -> None:
        """End the relay and everything it started. A second call does nothing."""
        if self._output < 0:
            return
        if link := getattr(self, "link", None):
            link.close()
        if process := getattr(self, "process", None):
            _end(process, 0.1 if self.pending else END_S)  # a relay that waits for its ranks does not check
        os.close(self._output)
        self._output, self.pending = -1, True


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    for end in (process.terminate, process.kill):
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
        end()
        patience_s = END_S
    process.wait()


_kept: dict[Nodes, tuple[Node, ...]] = {}


@atexit.register
def close() -> None:
    """End all relays of this process."""
    while _kept:
        for node in _kept.popitem()[1]:
            node.close()


def started(requested: Nodes) -> tuple[Node, ...]:
    """The other nodes with running relays. Relays of an earlier comparison are reused if they still answer, because a
    relay takes seconds to load its libraries. They end with this process. Raises Unavailable.
    """
    running = _kept.pop(requested, ())
    if all([node.answers() for node in running]) and (running or not requested.others):
        _kept[requested] = running
        return running
    for node in running:
        node.close()
    nodes = tuple(Node(name, words) for name, words in requested.others)
    try:
        _meet(nodes, requested.address)
    except BaseException:
        for node in nodes:
            node.close()
        raise
    _kept[requested] = nodes
    return nodes


def _meet(nodes: Sequence[Node], address: str) -> None:
    with socket.create_server(("127.0.0.1" if address == "127.0.0.1" else "", 0)) as listener:
        for node in nodes:
            node.start(f"{address}:{listener.getsockname()[1]}")
        waiting, end = {node.name: node for node in nodes}, time.monotonic() + CONNECT_S
        while waiting:
            try:
                name, link = accept(listener, {name: node.secret for name, node in waiting.items()}, 1.0)
            except LinkLost:
                ended = next((node for node in waiting.values() if node.process.poll() is not None), None)
                if ended or time.monotonic() > end:
                    node = ended or next(iter(waiting.values()))
                    raise node.lost("it ended" if ended else "it did not connect") from None
                continue
            waiting.pop(name).greet(link)


def usable_level(nodes: Sequence[Node], here: Level, wish: str) -> Level:
    """The isolation of all nodes: the lowest of their best levels. Raises Unavailable if a higher one was requested."""
    for node in nodes:
        if node.level < here:
            if wish != "auto":
                message = f"Isolation level {wish} is not available on {node.name}; {node.level} is."
                raise Unavailable("ISOLATION_LEVEL", message, f"Use auto or {node.level}.")
            here = node.level
    return here


def require_same_files(nodes: Sequence[Node], paths: Sequence[Path]) -> None:
    """Check that every node has identical copies of these files. Raises Unavailable NODE_FILES."""
    own = digests(paths)
    for node in nodes:
        digests_there = node.ask("digests", paths=[str(path) for path in paths])["digests"]
        for path, here, there in zip(paths, own, digests_there, strict=True):
            if here != there:
                message = f"Node {node.name} has {'another' if there else 'no'} file {path}."
                raise Unavailable("NODE_FILES", message, "Put suites and candidates in folders that all nodes share.")


def digests(paths: Sequence[Path]) -> list[str]:
    """SHA-256 of each file; empty if the file does not exist."""
    return [hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths]


def interface(address: str) -> str:
    """Name of the network interface of this machine that has this address. Raises Unavailable."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == address for candidate in addresses):
            return name
    raise Unavailable("NODE_LOST", f"No network interface has the address {address}.")


def facts(nodes: Sequence[Node]) -> dict[str, Any]:
    """Facts to disclose with a comparison over nodes."""
    if not nodes:
        return {}
    names = ("name", "cpu", "cpus", "level", "round_trip_s")
    others = [{name: getattr(node, name) for name in names} for node in nodes]
    return {"link": "network between nodes", "other_nodes": others}


def note(nodes: Sequence[Node]) -> list[Flag]:
    """The flag that describes what a verdict over nodes relies on."""
    if not nodes:
        return []
    names = ", ".join(node.name for node in nodes)
    message = wording.ranks_over_nodes(1 + len(nodes), names)
    evidence = {"nodes": 1 + len(nodes), "others": names}
    return [Flag(code="ranks_over_nodes", severity="note", message=message, evidence=evidence)]
