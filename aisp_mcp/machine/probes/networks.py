"""Network probes: TCP and RDMA, as records."""

from __future__ import annotations

import shutil
import time

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.probes import network
from aisp_mcp.machine.probes.rates import rate
from aisp_mcp.machine.probes.records import Placed, Probe


def tcp(host: str | None, mode: str, seconds: float, timeout_s: float) -> Probe:
    """One TCP stream. Raises UsageError MISSING_HOST, Unavailable NOT_INSTALLED, ProcessError NETWORK_FAILED."""
    began = time.monotonic()
    if mode == "host" and not host:
        raise UsageError("MISSING_HOST", "Mode host needs a host.", "Give host, or use mode loopback.")
    if host is not None or shutil.which("iperf3"):
        samples, method = network.iperf3(host or "loopback", seconds, timeout_s), "iperf3, one stream"
    else:
        samples, method = network.tcp_loopback(seconds), "one socket stream through Python"
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
    chosen = network.check_rdma(device)
    return Probe(
        device=chosen,
        device_id=f"ib:{chosen}",
        results=[Placed(name="rdma_write", unit="B/s", rate=rate(network.rdma_loopback(chosen, timeout_s)))],
        notes=["Both ends are this host: the adapter and its PCIe link are measured, not the fabric."],
        conditions={"method": "perftest ib_write_bw"},
        seconds=round(time.monotonic() - began, 3),
    )
