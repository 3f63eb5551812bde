"""Copies of a process with its libraries loaded: rights, descriptors and environment of ones started by themselves."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from harness_support import judge

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.candidate import forks
from aisp_mcp.judge.parent.processes import forked
from aisp_mcp.judge.parent.processes.forked import Libraries
from aisp_mcp.process import isolation, python, sockets

CAREFUL = """
    import os, stat, threading
    def kinds():
        for name in os.listdir("/proc/self/fd"):
            try:
                yield os.fstat(int(name)).st_mode
            except OSError:
                pass  # the one that listed them
    def run(a, b):
        about = dict(line.split(":", 1) for line in open("/proc/self/status"))
        if {apart}:
            try:  # it was executed from a mount outside
                os.chmod("/proc/self/exe", stat.S_IMODE(os.stat("/proc/self/exe").st_mode))
                raise AssertionError("the interpreter's file can be changed")
            except OSError:
                pass
            assert all(int(about[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), about
            assert int(about["NoNewPrivs"]) == 1
        assert not any(stat.S_ISDIR(mode) or stat.S_ISSOCK(mode) for mode in kinds())
        assert os.environ["HOME"].endswith("home") and os.environ["PYTHONHASHSEED"] == "0"
        assert os.environ["HOME"] == os.popen("echo $HOME").read().strip()
        assert "SECRET_OF_THE_CALLER" not in open("/proc/self/environ").read()
        assert threading.active_count() == 1
        from torch._inductor import config
        named = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS" in open(config.__file__).read()  # by newer releases
        # it was not loaded before the environment was there
        assert not (named and config.cpp_cache_precompile_headers)
        return a @ b
"""
LOADED = """
    import os, sys, tempfile
    assert "torch._inductor.config" in sys.modules  # of torch.use_deterministic_algorithms()
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
    def run(a, b):
        return a @ b
"""
KEYED = """
    import sys
    cache = sys.modules["triton.runtime.cache"]
    assert cache.triton_key.cache_info().currsize == 1
    def run(a, b):
        return a @ b
"""
MANY = 500  # descriptors: more than the kernel passes at once
NAMED = """
import json, os, sys
CORES = len(os.sched_getaffinity(0))  # as libraries count them when they are loaded
ASKED_BY_NVML = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")  # otherwise is_available() spoils CUDA for all forks
def main():
    told = [sys.argv, os.environ["NAME"], os.getcwd()]
    drawn = sys.modules["torch"].rand(1).item()
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    score = int(open("/proc/self/oom_score_adj").read())
    told = {"told": told, "drawn": drawn, "open": fds, "score": score, "cores": CORES, "nvml": ASKED_BY_NVML}
    print(json.dumps(told), flush=True)
    if os.environ["NAME"] == "waits":
        os.read(0, 1)
    sys.exit(3)
"""
TORCH = """
import random
default_generator = random
def rand(count):
    return Number()
class Number:
    def item(self):
        return random.random()
"""
CALLER = """
import time
from aisp_mcp.judge.parent.processes import forked
from aisp_mcp.judge.parent.processes.forked import Libraries
print(forked.server(Libraries.of({}, [], []))._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.torch
def test_a_copied_worker_has_no_rights_and_nothing_of_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "1")
    apart = isolation.probe().level in isolation.NAMESPACES
    comparison = judge(tmp_path, CAREFUL.format(apart=apart))
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    assert comparison.verification is not None
    assert comparison.verification.checked > 0


@pytest.mark.torch
@pytest.mark.parametrize("candidate", [LOADED, KEYED], ids=["modules", "the hash of triton"])
def test_what_a_first_call_loads_is_loaded_once_for_all_workers(tmp_path: Path, candidate: str) -> None:
    if isolation.probe().level not in isolation.NAMESPACES:
        pytest.skip("workers are not copied without namespaces")
    if candidate is KEYED:
        pytest.importorskip("triton")
    comparison = judge(tmp_path, candidate)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence


@pytest.fixture
def quick_torch(tmp_path: Path) -> None:
    """For servers that load from the test's folder: torch without the two seconds that it takes."""
    (tmp_path / "torch.py").write_text(TORCH)


def environment(folder: Path) -> dict[str, str]:
    """Variables with which a server finds modules of this folder."""
    return python.search_path({"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}, "/")


def copy(folder: Path, name: str, level: isolation.Level, cpus: Iterable[int] = ()) -> tuple[forked.Forked, int]:
    """A copy that runs NAMED, and the pipe that it reads from."""
    (folder / "named_program.py").write_text(NAMED)
    env = environment(folder)
    spec = isolation.confinement([sys.executable], level, writable=[folder])
    read, write = os.pipe()
    with (folder / name).open("wb") as output:
        fds = {0: read, 1: output.fileno(), 2: output.fileno(), **dict.fromkeys(range(9, 9 + MANY), read)}
        argv = ["named_program", "a word"]
        started = forked.server(Libraries.of(env, [], argv[:1], level, cpus)).start(
            argv, spec, {**env, "NAME": name}, folder, fds, True
        )
    os.close(read)
    return started, write


@pytest.mark.parametrize("level", ["L1", "best"])
def test_copies_take_their_place_and_tell_how_they_end(tmp_path: Path, level: str, quick_torch: None) -> None:
    chosen = isolation.probe().level if level == "best" else "L1"
    if chosen == "L0":
        pytest.skip("isolation is made for Linux")
    first, pipe = copy(tmp_path, "leaves", chosen)
    second, other = copy(tmp_path, "waits", chosen)
    try:
        assert first.wait(timeout=60) == 3
        words = json.loads((tmp_path / "leaves").read_text())
        assert words["told"] == [["named_program", "a word"], "leaves", str(tmp_path)]
        assert words["score"] == 1000
        assert words["nvml"] == "1"
        here = {*range(3), *range(9, 9 + MANY)}
        assert here <= {*words["open"]}
        assert len({*words["open"]} - here) <= 1  # the one that lists them
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=0.01)
        assert second.poll() is None
        second.kill()
        assert second.wait(timeout=60) == -signal.SIGKILL
    finally:
        os.close(pipe)
        os.close(other)


@pytest.mark.torch
def test_copies_start_under_the_usual_limit_of_descriptors_and_draw_numbers_of_their_own(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * MANY + 100, hard), hard))
    try:
        for name in ("one", "other"):
            started, pipe = copy(tmp_path, name, "L1")
            os.close(pipe)
            assert started.wait(timeout=60) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    drawn = {json.loads((tmp_path / name).read_text())["drawn"] for name in ("one", "other")}
    assert len(drawn) == 2


def test_libraries_count_the_cores_of_a_worker_not_those_of_whoever_starts_it(
    tmp_path: Path, quick_torch: None
) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        started, pipe = copy(tmp_path, "counts", "L1", allowed)
    finally:
        os.sched_setaffinity(0, allowed)
    os.close(pipe)
    assert started.wait(timeout=60) == 3
    assert json.loads((tmp_path / "counts").read_text())["cores"] == len(allowed)


def test_a_stopped_server_is_an_error_and_the_next_one_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_torch: None
) -> None:
    first, pipe = copy(tmp_path, "waits", "L1")
    server = int((Path("/proc") / str(first.pid) / "stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(forked, "ANSWER_S", 0.1)
        with pytest.raises(Unavailable) as refused:
            copy(tmp_path, "never", "L1")
    assert refused.value.code == "FORK_SERVER"
    assert first.wait(timeout=60) == -signal.SIGKILL  # it ended with the server
    os.close(pipe)
    after, pipe = copy(tmp_path, "after", "L1")
    os.close(pipe)
    assert after.wait(timeout=60) == 3


@pytest.mark.parametrize("asked", [[], ["json"]], ids=["nothing more", "to load more"])
def test_a_server_that_cannot_load_says_why(tmp_path: Path, asked: list[str], quick_torch: None) -> None:
    (tmp_path / "named_program.py").write_text("raise OSError('libcuda.so.1: no such file')\n")
    server = forked.server(Libraries.of(environment(tmp_path), [], ["named_program"]))
    assert server._process is not None
    server.load(asked)
    server._process.wait(timeout=60)
    with pytest.raises(Unavailable, match=r"\(OSError: libcuda.so.1: no such file\)") as refused:
        server.start(["named_program"], {}, {}, tmp_path, {})
    assert refused.value.code == "FORK_SERVER"


@pytest.mark.torch
def test_the_server_ends_with_whoever_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        pid = int(caller.stdout.readline())
        ended = select.poll()
        ended.register(os.pidfd_open(pid), select.POLLIN)
        assert not ended.poll(0)
        caller.kill()
        assert ended.poll(60_000)


@pytest.mark.parametrize("said", [b"", b"\x05", b"\x05\0\0\0[", b'\x0f\0\0\0{"numbers":[3]}'])
def test_a_request_that_breaks_off_is_the_end(said: bytes) -> None:
    """Its sender was killed: a server that waits for the rest would stay for ever."""
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(said)
        ours.shutdown(socket.SHUT_WR)
        assert forks.receive(its) is None


def test_where_nothing_can_be_sealed_early_callers_learn_it_and_later_ones_find_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with sockets.listening(tmp_path / "name") as listener:
        early = sockets.connected(tmp_path / "name")
        assert early
        forks._refuse(listener, "name")
        assert early.recv(1) == forks.UNSEALED
        assert sockets.connected(tmp_path / "name") is None
    early.close()


NO_NESTING = """
import os
from aisp_mcp.judge.parent.processes import forked
from aisp_mcp.judge.parent.processes.forked import Libraries
from aisp_mcp.process import kernel, sandbox
sandbox._leave(kernel.CLONE_NEWNS)
open("/proc/sys/user/max_user_namespaces", "w").write("1")
try:
    forked.server(Libraries.of(os.environ, [], [], "L2")).start(["none"], {}, {}, "/", {})
except forked.Unsealed:
    print("processes start by themselves")
"""


@pytest.mark.torch
def test_where_namespaces_cannot_be_nested_nothing_is_copied() -> None:
    if isolation.probe().level not in isolation.NAMESPACES:
        pytest.skip("needs user namespaces whose number can be limited")
    done = subprocess.run([sys.executable, "-c", NO_NESTING], capture_output=True, text=True, timeout=60)
    if "Read-only file system" in done.stderr:
        pytest.skip("needs user namespaces whose number can be limited")
    assert done.stdout == "processes start by themselves\n", done.stderr
