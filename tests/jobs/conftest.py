"""A store and a manager whose workers know the test tools, and the certainty that no test leaves a process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest
from waiting import until

from aisp_mcp.jobs import ready
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.settings import Settings
from aisp_mcp.store import queue
from aisp_mcp.store.database import Store

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_spawn", forks.spawning(forks.SUPERVISOR, forks.STANDBY))


@pytest.fixture
def new_supervisors(_forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a job two new interpreters where no process stands by."""
    monkeypatch.setattr(os, "posix_spawn", forks.spawning(forks.STANDBY))


@pytest.fixture
def new_interpreters(_forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the process that stands by a new interpreter, too."""
    monkeypatch.setattr(os, "posix_spawn", forks.spawning())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """AISP_HOME for this test; afterwards nothing that was started for it may live."""
    for name in [name for name in os.environ if name.startswith("AISP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AISP_TOOL_MODULES", "job_tools")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    folder = tmp_path / "home"
    monkeypatch.setenv("AISP_HOME", str(folder))
    yield folder
    until(lambda: not [pid for pid in tree.marked("AISP_HOME", str(folder)) if tree.start_time(pid)])


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store(home) as opened:
        yield opened


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return Jobs(store, Settings.from_env())


@pytest.fixture
def kept(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process stands by for the jobs until this folder is removed."""
    passing = ready._OF_ONE_JOB | {"PYTEST_CURRENT_TEST"}  # which differs between a fixture and its test
    monkeypatch.setattr(ready, "_OF_ONE_JOB", passing)
    monkeypatch.setattr(queue, "SPAWN_AGAIN_S", 60.0)  # it may still be loading on a busy machine
    path = tmp_path / "kept"
    path.mkdir()
    jobs.keep_ready("aisp_test_calls", [], path, 600)
    yield path
    shutil.rmtree(path, ignore_errors=True)
