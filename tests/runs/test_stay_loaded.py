"""Steps of a loop: each verdict's job leaves processes with loaded libraries to the next."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from aisp_mcp.jobs.ready import FOLDER, WARM
from aisp_mcp.process import isolation

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.timeout(180),
    pytest.mark.skipif(isolation.probe().level not in isolation.NAMESPACES, reason="no namespaces here"),
]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
SLOW = "def f(s):\n    return sum(c in 'aeiou' for c in s)\n"
WRONG = "def f(s):\n    return s.count('a')\n"
SEES = "import os\ndef f(s):\n    os.environ['LEFT'] = 'behind'\n    return sum(s.count(c) for c in 'aeiou')\n"
LOOKS = "import os\ndef f(s):\n    return sum(s.count(c) for c in 'aeiou') + len(os.environ.get('LEFT', ''))\n"


@pytest.fixture
def warm(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of what stays loaded; it all ends with the test. The working folder has the functions."""
    monkeypatch.setenv("AISP_STAY_LOADED", "1")
    monkeypatch.delenv("AISP_TOOL_MODULES")
    for name, text in {"slow": SLOW, "wrong": WRONG, "sees": SEES, "looks": LOOKS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    folder = home / WARM
    yield folder
    left = servers(folder)
    shutil.rmtree(folder, ignore_errors=True)
    assert psutil.wait_procs(left, timeout=60)[1] == []


def servers(folder: Path) -> list[psutil.Process]:
    """Processes that have loaded libraries in the folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found += [process] if process.cwd() == str(folder) else []
    return found


def verdict(cli: Cli, candidate: str) -> int:
    """The exit code."""
    inputs = ("--inputs", "s=text(2000)", "--preset", "quick", "--replicates", "1")
    return cli("bench", "verify", "slow.py:f", f"{candidate}.py:f", *inputs, timeout=150).returncode


def test_the_next_step_finds_libraries_loaded_and_no_trace_of_the_last(cli: Cli, home: Path, warm: Path) -> None:
    assert verdict(cli, "sees") != 1
    loaded, waiting = sorted(os.listdir(warm)), os.listdir(home / FOLDER)
    assert (len(loaded), len(waiting)) == (2, 1)  # for verifiers and for workers; for jobs
    pids = {process.pid for process in servers(warm)}
    assert verdict(cli, "wrong") == 3
    assert verdict(cli, "looks") != 3  # it would be wrong if it saw the variable
    assert sorted(os.listdir(warm)) == loaded  # nothing was missed
    assert os.listdir(home / FOLDER) == waiting
    assert pids <= {process.pid for process in servers(warm)}


def test_processes_that_were_killed_are_replaced(cli: Cli, warm: Path) -> None:
    assert verdict(cli, "wrong") == 3
    loaded, killed = sorted(os.listdir(warm)), servers(warm)
    for process in killed:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(killed, timeout=60)
    assert sorted(os.listdir(warm)) == loaded  # sockets at which nobody listens
    assert verdict(cli, "wrong") == 3
    assert sorted(os.listdir(warm)) == loaded
    assert not {process.pid for process in killed} & {process.pid for process in servers(warm)}
    assert verdict(cli, "wrong") == 3


def test_nothing_stays_where_nobody_asks_for_it(
    cli: Cli, home: Path, warm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AISP_STAY_LOADED", raising=False)
    assert verdict(cli, "wrong") == 3
    assert not warm.exists()
    assert not (home / FOLDER).exists()
