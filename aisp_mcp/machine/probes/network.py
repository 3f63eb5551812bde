"""Network rates: TCP by iperf3 if it is installed, else a plain stream over loopback; RDMA through perftest."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.errors import ProcessError, Unavailable, UsageError
from aisp_mcp.machine.probes.probe_runner import rate
from aisp_mcp.machine.probes.records import Placed, Probe
from aisp_mcp.process import sockets
from aisp_mcp.system.files import ROOT, names


def tcp(host: str | None, mode: str, seconds: float, timeout_s: float) -> Probe:
    """One TCP stream. Raises UsageError MISSING_HOST, Unavailable NOT_INSTALLED, ProcessError NETWORK_FAILED."""
    began = time.monotonic()
    if mode == "host" and not host:
        raise UsageError("MISSING_HOST", "Mode host needs a host.", "Give host, or use mode loopback.")
    if host is not None or shutil.which("iperf3"):
        samples, method = iperf3(host or "loopback", seconds, timeout_s), "iperf3, one stream"
    else:
        samples, method = tcp_loopback(seconds), "one socket stream through Python"
    notes = [] if host else ["Loopback never leaves the kernel: it bounds the software, not the adapter."]
    return Probe(
        device=host or "loopback",
        device_id=f"tcp:{host or 'loopback'}",
        results=[Placed(name="tcp", unit="B/s", rate=rate(samples))],
        notes=notes,
        conditions={"method": method, "seconds": seconds},
        seconds=round(time.monotonic() - began, 3),
    )


def rdma(device: str | None, timeout_s: float) -> Probe:
    """ib_write_bw over one adapter. Raises Unavailable NO_HCA, UNKNOWN_DEVICE, NOT_INSTALLED; ProcessError."""
    began = time.monotonic()
    chosen = check_rdma(device)
    return Probe(
        device=chosen,
        device_id=f"ib:{chosen}",
        results=[Placed(name="rdma_write", unit="B/s", rate=rate(rdma_loopback(chosen, timeout_s)))],
        notes=["Both ends are this host: the adapter and its PCIe link are measured, not the fabric."],
        conditions={"method": "perftest ib_write_bw"},
        seconds=round(time.monotonic() - began, 3),
    )


_CHUNK = 1 << 20
_SINK = """
import socket, sys
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
c, _ = s.accept(); b = bytearray(1 << 20)
while c.recv_into(b): pass
"""


def iperf3(host: str, seconds: float, timeout_s: float) -> list[float]:
    """Bytes/s of each one-second interval, by the receiver's counts. host: a server, or our own over loopback.

    Raises Unavailable NOT_INSTALLED, ProcessError NETWORK_FAILED.
    """
    program = shutil.which("iperf3")
    if program is None:
        raise Unavailable("NOT_INSTALLED", "iperf3 was not found on PATH.", "sudo apt-get install iperf3")
    if host != "loopback":
        return _iperf3_client(program, host, 5201, seconds, timeout_s)
    with _iperf3_server(program) as port:
        return _iperf3_client(program, "127.0.0.1", port, seconds, timeout_s)


@contextlib.contextmanager
def _iperf3_server(program: str) -> Iterator[int]:
    port = sockets.free_port()
    command = [program, "-s", "-1", "-B", "127.0.0.1", "-p", str(port), "--forceflush"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert child.stdout is not None
        for line in child.stdout:  # it reports when it listens
            if b"listening" in line.lower():
                break
        yield port
    finally:
        child.kill()
        child.communicate()


def _iperf3_client(program: str, host: str, port: int, seconds: float, timeout_s: float) -> list[float]:
    from aisp_mcp.process.run import run

    argv = [program, "-c", host, "-p", str(port), "-t", f"{seconds:g}", "-i", "0.5", "-J"]
    done = run(argv, timeout_s=timeout_s)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise ProcessError("NETWORK_FAILED", f"iperf3 gave no JSON: {done.stderr.strip()[-200:]}") from error
    if "error" in document:
        raise ProcessError("NETWORK_FAILED", f"iperf3: {document['error']}", "Start `iperf3 -s` on the other host.")
    return [interval["sum"]["bits_per_second"] / 8 for interval in document["intervals"]]


def tcp_loopback(seconds: float) -> list[float]:
    """Bytes/s per half second of one TCP stream to our own process over 127.0.0.1."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", _SINK], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
            return _pump(stream, seconds)
    finally:
        child.kill()
        child.communicate()


def _pump(stream: socket.socket, seconds: float) -> list[float]:
    data, samples = memoryview(bytes(_CHUNK)), []
    for _ in range(max(1, round(seconds / 0.5))):
        sent, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < 0.5:
            sent += stream.send(data)
        samples.append(sent / spent)
    return samples


def adapters(root: Path = ROOT) -> list[str]:
    """InfiniBand and RoCE devices."""
    return names(root, "/sys/class/infiniband")


def check_rdma(device: str | None, root: Path = ROOT) -> str:
    """The device to test. Raises Unavailable NO_HCA, NOT_INSTALLED, or UNKNOWN_DEVICE with the existing names."""
    names = adapters(root)
    if not names:
        raise Unavailable(
            "NO_HCA",
            "No InfiniBand or RoCE adapter: /sys/class/infiniband has no device.",
            "aisp_hw_network measures TCP.",
            (("aisp_hw_network", {}), ("aisp_gpu_topology", {})),
        )
    if device is not None and device not in names:
        raise Unavailable("UNKNOWN_DEVICE", f"No adapter {device!r}; there are: {', '.join(names)}.")
    if shutil.which("ib_write_bw") is None:
        raise Unavailable("NOT_INSTALLED", "ib_write_bw was not found on PATH.", "sudo apt-get install perftest")
    return device or names[0]


def rdma_loopback(device: str, timeout_s: float) -> list[float]:
    """Bytes/s of ib_write_bw between two processes over this adapter's own port, one value per run of five.

    Raises ProcessError NETWORK_FAILED.
    """
    return [_rdma_once(device, timeout_s / 6) for _ in range(5)]


def _rdma_once(device: str, timeout_s: float) -> float:
    from aisp_mcp.process.run import run

    port = sockets.free_port()
    argv = ["ib_write_bw", "-d", device, "-F", "--report_gbits", "-p", str(port)]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_listener(port, timeout_s)
        done = run([*argv, "127.0.0.1"], timeout_s=timeout_s)
        return parse_perftest(done.stdout)
    finally:
        server.kill()
        server.communicate()


def _wait_for_listener(port: int, timeout_s: float) -> None:
    """Wait until the kernel lists the port as listening; connecting would use up the server's one client."""
    local_port, deadline = f":{port:04X} ", time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        if any(local_port in line and " 0A " in line for line in table.splitlines()):
            return
        time.sleep(0.05)
    raise ProcessError("NETWORK_FAILED", "ib_write_bw did not listen in time.")


def parse_perftest(text: str) -> float:
    """Average bytes/s from ib_write_bw --report_gbits: the fourth column of the row after the header."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if "#bytes" in line and at + 1 < len(lines):
            cells = lines[at + 1].split()
            if len(cells) >= 4:
                return float(cells[3]) * 1e9 / 8
    raise ProcessError("NETWORK_FAILED", f"ib_write_bw printed no result: {text.strip()[-200:]}")
