"""A tool for a pool that judges nothing: it prepares, and holds a device that does not exist."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import Field

from aisp_mcp.judge.lease import Lease
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import RUNS, JobParams, JobSpec, S, tool
from aisp_mcp.settings import PoolSettings


class WeighParams(JobParams):
    candidate: str = Field(description="Path of a file.")
    device: str = "toy"
    gate: str = Field(default="", description="Path of a file to wait for.")
    journal: str = Field(default="", description="Path of a file that gets a line at the start.")
    prepare_s: float = 0.0
    measure_s: float = 0.0
    in_all: bool = Field(default=False, description="Hold the device from the beginning.")


class Weighed(Record):
    passed: bool
    text: str
    lease: dict[str, object]


@tool(cli="pool weigh", effect=RUNS, cost=S, job=JobSpec(timeout_s=60, measures=True), verdict=True)
def aisp_pool_weigh(p: WeighParams, ctx: Context) -> Weighed:
    """Weigh a candidate."""
    text = Path(p.candidate).read_text()
    if p.journal:
        with open(p.journal, "a") as file:
            file.write(f"{text} {os.getpid()} {os.getppid()}\n")
    lease = Lease(PoolSettings.from_env().leases, p.device)
    if p.in_all:
        lease.take()
    time.sleep(p.prepare_s)
    while p.gate and not Path(p.gate).exists():
        time.sleep(0.01)
    lease.take()
    time.sleep(p.measure_s)
    lease.give()
    return Weighed(passed=True, text=text, lease=lease.facts()["lease"])
