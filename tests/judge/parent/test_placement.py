"""Placement of processes: the device nodes that a worker must not open, and the cores left to workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aisp_mcp.judge.parent.processes import confined, procfs
from aisp_mcp.judge.parent.processes import placement as places
from aisp_mcp.judge.parent.processes.confined import PREFERRED, prefer
from aisp_mcp.judge.parent.processes.placement import (
    MEMORY_SHARE,
    MIN_MEMORY,
    PlacementFactory,
    measuring_cpus,
    other_devices,
    visible_device,
    watching,
    worker_env,
)
from aisp_mcp.judge.parent.processes.procfs import session_nice

BUS = ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0")
MINORS = (2, 0, 1)  # the driver counts in another order than the bus


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    for index, (bus, minor) in enumerate(zip(BUS, MINORS, strict=True)):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        text = f"Model: \t\t Some GPU\nGPU UUID: \t GPU-{index}a5b\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
        (tmp_path / f"dev/nvidia{minor}").touch()
    return tmp_path


def test_a_worker_searches_where_its_caller_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from its own folder, and with the value that a job has, so that both use the same loaded libraries."""
    monkeypatch.chdir(tmp_path)
    assert (
        worker_env(tmp_path, 1, "cpu", {"PYTHONPATH": "src::/elsewhere:"})["PYTHONPATH"] == f"{tmp_path}/src:/elsewhere"
    )
    assert "PYTHONPATH" not in worker_env(tmp_path, 1, "cpu", {})


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [
        (None, [0, 1]),
        ("0", [0, 1]),
        ("1", [2, 1]),
        ("2,0", [2, 0]),
        ("GPU-1a", [2, 1]),
        ("GPU-", []),
        ("3", []),
        ("MIG-7", []),
        ("", []),
    ],
)
def test_all_gpus_are_hidden_but_the_one_that_is_given(machine: Path, visible: str | None, hidden: list[int]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert other_devices(environ, machine) == tuple(machine / f"dev/nvidia{minor}" for minor in hidden)


@pytest.mark.parametrize(
    ("visible", "name"),
    [(None, "GPU-0a5b"), ("1", "GPU-1a5b"), ("2,0", "GPU-2a5b"), ("GPU-1a", "GPU-1a5b"), ("MIG-7", "MIG-7"), ("", "")],
)
def test_a_worker_gets_its_gpu_by_a_name_that_does_not_depend_on_hidden_ones(
    machine: Path, visible: str | None, name: str
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_device(environ, machine) == name


def test_a_gpu_whose_name_the_driver_masks_keeps_its_number(machine: Path) -> None:
    for path in machine.glob("proc/driver/nvidia/gpus/*/information"):
        path.write_text(path.read_text().replace("5b", "??"))
    assert visible_device({"CUDA_VISIBLE_DEVICES": "1,2"}, machine) == "1"
    assert visible_device({}, machine) == "0"


def test_a_gpu_without_a_node_does_not_count(machine: Path) -> None:
    (machine / "dev/nvidia2").unlink()
    assert other_devices({"CUDA_VISIBLE_DEVICES": "0"}, machine) == (machine / "dev/nvidia1",)


def test_without_gpus_nothing_is_hidden(tmp_path: Path) -> None:
    assert other_devices({}, tmp_path) == ()


def test_all_processes_have_the_same_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever those before them hold when they start."""
    where = PlacementFactory(tmp_path, "cpu", "L1", frozenset({0}), free_bytes=100 << 30)
    first = where.make("first")
    monkeypatch.setattr(places.os, "sysconf", lambda name: 1)
    assert where.make("second").memory_bytes == first.memory_bytes == int(MEMORY_SHARE * (100 << 30))
    assert PlacementFactory(tmp_path, "cpu", "L1", frozenset({0})).make("third").memory_bytes == MIN_MEMORY


THREADS = """
import subprocess, sys, threading
for _ in range(3):
    threading.Thread(target=sys.stdin.read, daemon=True).start()
for apart in (False, True):
    subprocess.Popen(["sleep", "60"], start_new_session=apart, stdout=subprocess.DEVNULL)
print("started", flush=True)
threading.Event().wait()
"""


def test_a_session_is_preferred_once_and_each_thread_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(confined.proc, "set_session_nice", lambda pid, value: told.append((os.getsid(pid), value)))
    argv, pipe = [sys.executable, "-c", THREADS], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True) as program:
        assert program.stdout
        program.stdout.readline()
        everyone = procfs.tree(program.pid)
        threads = procfs.tasks(everyone)
        try:
            prefer(threads)
            nice = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        finally:
            procfs.send(everyone, signal.SIGKILL)
    assert (len(everyone), len(threads)) == (3, 6)
    assert told == [(program.pid, PREFERRED), (everyone[2], PREFERRED)]
    assert nice == {PREFERRED if os.geteuid() == 0 else os.getpriority(os.PRIO_PROCESS, 0)}


def test_the_parent_stands_aside_while_it_watches() -> None:
    def preferred() -> tuple[int, int]:
        return os.getpriority(os.PRIO_PROCESS, 0), session_nice(os.getpid())

    allowed, usual, of_session = os.sched_getaffinity(0), preferred(), Path("/proc/self/autogroup")
    measured, has_sessions = measuring_cpus(), of_session.exists() and bool(of_session.read_text())
    with watching(measured):
        assert os.sched_getaffinity(0) == (allowed - measured or allowed)
        if os.geteuid() == 0:
            assert preferred()[0] == PREFERRED
            assert preferred()[1] == (PREFERRED if has_sessions else 0)
    assert os.sched_getaffinity(0) == allowed
    assert preferred() == usual
