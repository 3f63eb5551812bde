"""A store and a manager whose workers know the test tools, and the certainty that no test leaves a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.model.job import Job
from aisp_mcp.process import tree
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store

HERE = Path(__file__).parent


def until(condition: Callable[[], object], patience_s: float = 30.0) -> None:
    """Wait for a condition by polling; fail loudly when it never comes."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.005)


def finished(jobs: Jobs, job_id: str, patience_s: float = 40.0) -> Job:
    """The job once it has ended."""
    until(lambda: jobs.get(job_id).state.terminal, patience_s)
    return jobs.get(job_id)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """AISP_HOME for this test; afterwards nothing that was started for it may live."""
    monkeypatch.setenv("AISP_TOOL_MODULES", "job_tools")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    folder = tmp_path / "home"
    monkeypatch.setenv("AISP_HOME", str(folder))
    yield folder
    until(lambda: not [pid for pid in tree.marked("AISP_HOME", str(folder)) if tree.start_time(pid)], 15)


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store(home) as opened:
        yield opened


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return Jobs(store, Settings.from_env())


@pytest.fixture
def tree_of() -> Callable[[Path], list[int]]:
    """Pids of everything that runs for a home, this process apart."""
    return lambda home: [pid for pid in tree.marked("AISP_HOME", str(home)) if pid != os.getpid()]
