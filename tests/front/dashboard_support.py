"""The dashboard as a process, a client of it, and a store with something to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forks
import httpx2
from chart_client import DATA
from waiting import PATIENCE_S

from aisp_mcp.envelope import Envelope, Meta, Status
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run

HOSTILE = "ch07:<script>window.ran='yes'</script>\x1b[31m"
NSYS, NCU = DATA / "train_step_h200.nsys.sqlite.gz", DATA / "five_kernels_h200.ncu-raw.csv.gz"
START, DAY = 1.79e9, 86_400.0


class Dashboard:
    """`aisp dashboard` on a free port. link: the address that logs in.

    It is a fork; popen=subprocess.Popen makes it a new interpreter.
    """

    def __init__(
        self,
        *options: str,
        env: dict[str, str] | None = None,
        popen: type[subprocess.Popen[str]] = forks.Popen,
    ) -> None:
        self._cookies: httpx2.Cookies | None = None
        argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", "dashboard", "--port", "0", *options]
        self.process = popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env or os.environ,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.search(r"open ((http://[^/]+)/login\?token=\S+)", line)
        assert match, line + self.process.communicate(timeout=PATIENCE_S)[1]
        self.link, self.origin = match[1], match[2]

    def stranger(self) -> httpx2.Client:
        """A client without the cookie."""
        # No connection is kept: on a stalled machine the server closes an idle one just as it is used again.
        return httpx2.Client(base_url=self.origin, timeout=50, limits=httpx2.Limits(max_keepalive_connections=0))

    @contextmanager
    def client(self) -> Iterator[httpx2.Client]:
        """A client that has opened the link, or one with its cookie."""
        with self.stranger() as web:
            if self._cookies is None:
                assert web.get(self.link).status_code == 303
                self._cookies = httpx2.Cookies(web.cookies)
            web.cookies = httpx2.Cookies(self._cookies)
            yield web

    def stop(self) -> str:
        """End it; what it wrote to standard error."""
        self.process.terminate()
        return self.process.communicate(timeout=PATIENCE_S)[1]


def comparison(target: str, candidate: str = "", ratio: float = 2.0, **more: Any) -> dict[str, Any]:
    """A verdict with its evidence; the interval is 5 % wide to each side."""
    interval = {"low": ratio * 0.95, "high": ratio * 1.05}
    figures = {"processes": 5, "rounds": 20, "calls": 400, "parent_time_s": 2e-3, "p50_s": 2e-3, "p95_s": 2.2e-3}
    sides = {
        name: {**figures, "time_s": time, "memory": {"device_peak_allocated": memory}}
        for name, time, memory in (("baseline", 2e-3, 2**30), ("optimized", 2e-3 / ratio, 3 * 2**28))
    }
    verdict = "faster" if ratio > 1.06 else "slower" if ratio < 0.94 else "inconclusive"
    shared = {"isolation": "L2", "replicates": 5, "noise_floor": 0.02, "margin": 0.01, "p_value": 0.001}
    clocks = {"used": "parent", "ratio_parent": ratio, "ratio_worker": ratio, "disagreement": 0.001, "delta": 0.01}
    checks = {"calls": 400, "checked": 400, "undetected_share": 0.0, "oracle": "float64"}
    about = {"target": target, "candidate": candidate, "verdict": verdict, "ratio": ratio, "interval": interval}
    evidence = {"clocks": clocks, "verification": checks, "phases": {"start": 1.5, "rounds": 4.0}, "seconds": 6.0}
    return {**about, "sentence": f"{target}: {verdict}.", **shared, **sides, **evidence, **more}


def keep_run(
    store: Store, number: int, comparisons: Sequence[dict[str, Any]], at: float, kind: str = "bench", **about: Any
) -> str:
    """One run of an H200. about: more of its environment; preset: not default."""
    preset = about.pop("preset", "default")
    run_id = f"r_{number:022d}"
    environment = {"gpus": [{"name": "NVIDIA H200", "uuid": "GPU-1"}], "during": {"flags": []}, **about}
    body = {"id": run_id, "created_at": at, "preset": preset, "profile": "strict", "seconds": 9.0}
    run = {**body, "kind": kind, "environment": environment, "comparisons": list(comparisons)}
    store.save_run(Run.model_validate(run), None)
    return run_id


def keep_profile(store: Store, name: str, tool: str, result: dict[str, Any], **params: Any) -> str:
    """A job that made a profile, which is a file of the tests."""
    job_id = f"j_{name:0>22}"
    folder = store.home / "runs" / job_id
    params = {"target": "ch07:row_sum", **params}
    shared = {"params": params, "state": JobState.QUEUED, "timeout_s": 60, "run_dir": str(folder)}
    store.insert_job(Job(id=job_id, tool=tool, created_at=START, **shared), python="", cwd="", env={})
    store.transition(job_id, JobState.RUNNING, started_at=START)
    meta = Meta(duration_ms=1, version="0", at="2026-09-21T00:00:00Z")
    store.finish(job_id, Envelope(tool=tool, status=Status.OK, result=result, meta=meta))
    store.transition(job_id, JobState.SUCCEEDED, ended_at=START + 5)
    return job_id


def fill_own(home: Path) -> None:
    """Two pairs of functions with one name, and a gate of two looks that could not judge."""
    with Store(home) as store:
        for number, (content, ratio) in enumerate((("3f2a9c", 3.66), ("77b1e0", 1.38), ("3f2a9c", 3.6))):
            known = {"disclosed": {"identity": f"slow:nearest@{content}"}}
            keep_run(store, 30 + number, [comparison("slow:nearest", "fast", ratio, **known)], START, "functions")
        looks = {"outcome": "could_not_judge", "looks": ["slower 0.65×", "inconclusive 0.9×"]}
        keep_run(store, 33, [comparison("ch01:scale", "", 0.65, disclosed=looks)], START, "gate")


def fill(home: Path) -> None:
    """Twenty runs of three variants that combine, of which one gets worse; a hostile name; probes; two profiles."""
    with Store(home) as store:
        for number in range(20):
            wobble = 1 + 0.01 * ((number * 7) % 5 - 2)
            worse = 2.4 if number < 14 else 1.7
            rows = [
                comparison("ch07:row_sum", "tiled", 1.5 * wobble),
                comparison("ch07:row_sum", "ones", worse * wobble if number != 14 else 1.7),
                comparison("ch07:row_sum", "ones_tiled", 3.4 * wobble),
                comparison("ch09:linear_layout", "", 1.01 * wobble),
            ]
            if number == 19:
                rows.append(comparison(HOSTILE, "", 1.8))
            keep_run(store, number, rows, START + number * DAY)
            for kind, unit, value in (("bandwidth_copy", "B/s", 4.2e12), ("gemm_bf16", "FLOP/s", 7.5e14)):
                store.put_measurement(kind, "GPU-1", value * wobble, unit, {})
        keep_profile(store, "nsys", "aisp_profile_nsys", {"database": str(NSYS)})
        keep_profile(store, "ncu", "aisp_profile_ncu", {"files": [str(NCU)]})
