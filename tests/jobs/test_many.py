"""Two servers and four clients on one store: every job runs once, and what must not overlap does not."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

import forks
import pytest

from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import JobState

CLIENT = """
import sys, time
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store
name, count, journal = sys.argv[1], int(sys.argv[2]), sys.argv[3]
settings = Settings.from_env()
managers = [Jobs(Store(settings.home), settings) for _ in range(2)]
ids = []
for i in range(count):
    params = {"journal": journal, "label": f"{name}.{i}"}
    resources = ["gpu:x"] if i % 5 == 0 else []
    ids.append(managers[i % 2].submit("aisp_test_work", params, timeout_s=100, resources=resources).id)
while not all(job.state.terminal for job in managers[0].peek(ids)):
    managers[1].peek(ids)
    time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_hundred_jobs_from_four_clients_run_once_each(home: Path, tmp_path: Path) -> None:
    run_many(home, tmp_path, clients=4, each=25)


def test_twelve_jobs_from_two_clients_run_once_each(home: Path, tmp_path: Path) -> None:
    run_many(home, tmp_path, clients=2, each=6)


def run_many(home: Path, tmp_path: Path, clients: int, each: int) -> None:
    journal = tmp_path / "journal"
    started = [forks.Popen([sys.executable, "-c", CLIENT, f"c{i}", str(each), str(journal)]) for i in range(clients)]
    assert [client.wait() for client in started] == [0] * clients
    with Store(home) as store:
        jobs, more = store.list_jobs(limit=200)
    assert more is None
    assert Counter(job.state for job in jobs) == {JobState.SUCCEEDED: clients * each}
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert Counter(label for what, label, _ in lines if what == "begin") == {
        f"c{c}.{i}": 1 for c in range(clients) for i in range(each)
    }
    spans: dict[str, dict[str, int]] = {}
    for what, label, at in lines:
        spans.setdefault(label, {})[what] = int(at)
    exclusive = sorted(
        (span["begin"], span["end"]) for label, span in spans.items() if int(label.rpartition(".")[2]) % 5 == 0
    )
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(exclusive))
    edges = sorted([(span["begin"], 1) for span in spans.values()] + [(span["end"], -1) for span in spans.values()])
    depth = most = 0
    for _, step in edges:
        depth += step
        most = max(most, depth)
    assert most <= 4 + 1  # the shared places and the one resource
