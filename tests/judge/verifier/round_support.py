"""A verifier without its process, the workers' part of its rounds, and rounds of sums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.verifier.main import Verifier

BASELINE = '''"""Row sums."""
from aisp_mcp.bench import Benchmark


class Sums(Benchmark):
    runs = 0

    def inputs(self, rng):
        return {"x": rng.randn(16, 64)}

    def run(self, x):
        self.runs += 1
        return x.sum(1)
'''
BASE, AGAIN, CANDIDATE = range(3)
COUNT = 3


@contextmanager
def opened(folder: Path) -> Iterator[Verifier]:
    """One whose replicate has had its first comparisons."""
    file = folder / "baseline_sums.py"
    file.write_text(BASELINE)
    fds = [
        (os.memfd_create("control", os.MFD_ALLOW_SEALING), os.memfd_create("arena", os.MFD_ALLOW_SEALING))
        for _ in range(6)
    ]
    verifier_process = Verifier(fds)
    verifier_process.open(str(file), "default", "cpu", vars(ALL), 1, 1 << 20, 0.01)
    for worker_id in (BASE, AGAIN, CANDIDATE):
        verifier_process.attach(worker_id)
    verifier_process.params([BASE, AGAIN, CANDIDATE], 7)
    verifier_process.fill({str(worker_id): 1 for worker_id in (BASE, AGAIN, CANDIDATE)}, 11, "plain")
    for worker_id in (BASE, CANDIDATE):
        work(verifier_process, worker_id, 1)
        assert verifier_process.check(worker_id, [0])["failure"] is None
    yield verifier_process
    for fd in (fd for pair in fds for fd in pair):
        os.close(fd)


def work(verifier: Verifier, worker_id: int, count: int = COUNT, error: float = 0.0) -> None:
    """Do a worker's part of a round: sums of the rows, off by an error."""
    for call in range(count):
        [out] = verifier.arenas[worker_id].outputs(call)
        out.copy_(verifier.arenas[worker_id].inputs(call)["x"].sum(1) + error)


def fill(verifier: Verifier, seed: int, counts: tuple[int, int] = (COUNT, COUNT)) -> None:
    verifier.fill({str(BASE): counts[0], str(CANDIDATE): counts[1]}, seed, "plain")


def runs(verifier: Verifier) -> int:
    spec: Any = verifier.spec
    return int(spec.runs)
