"""Limits of an isolated program, tried by programs that want to break them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from aisp_mcp.errors import Unavailable
from aisp_mcp.process import isolation, tree
from aisp_mcp.process.isolation import Isolation, Level, program_pid, wrap
from aisp_mcp.process.run import Completed, run

TRY = """
import sys
def attempt(name, call):
    try:
        call()
    except Exception as error:
        print(name, "refused", type(error).__name__)
    else:
        print(name, "done")
"""
HANG = "import time\nprint('up', flush=True)\ntime.sleep(600)"
LEVELS: list[Level] = ["L2", "L3"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Level:
    requested: Level = request.param
    reached = isolation.probe()
    if LEVELS.index(requested) > (LEVELS.index(reached.level) if reached.level in LEVELS else -1):
        pytest.skip(f"{requested} is not available here: {reached.missing}")
    return requested


def python(code: str, level: Level, *args: str, writable: tuple[Path, ...] = (), **more: object) -> Completed:
    argv = wrap([sys.executable, "-c", code, *args], level, writable=writable, **more)  # type: ignore[arg-type]
    return run(argv, timeout_s=40)


def test_the_probe_names_what_it_proved_and_what_is_missing() -> None:
    reached = isolation._probe()
    assert reached == isolation.probe() == Isolation(reached.level, reached.means, reached.missing)
    assert reached.level != "L3" or any("Landlock" in words for words in reached.means)
    assert reached.level == "L3" or reached.missing


def test_a_success_is_remembered_and_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    results = iter([False, True, False])
    answers = [isolation.works_until_boot("a device, driver 1", lambda: next(results)) for _ in range(3)]
    assert answers == [False, True, True]
    assert not isolation.works_until_boot("a device, driver 2", lambda: next(results))


def test_an_interpreter_that_cannot_be_started_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(isolation, "wrap", lambda *_, **__: [str(tmp_path)])
    reached = isolation._probe()
    assert reached.level == "L1"
    assert [words for words in reached.missing if "no Landlock" not in words and "did not start" not in words] == []


def test_files_change_only_where_allowed(level: Level, tmp_path: Path) -> None:
    allowed, forbidden = tmp_path / "allowed", tmp_path / "forbidden"
    allowed.mkdir()
    forbidden.mkdir()
    code = f"""{TRY}
import os
attempt("root", lambda: open("/aisp-was-here", "w"))
attempt("etc", lambda: open("/etc/aisp-was-here", "w"))
attempt("python", lambda: open(os.path.dirname(os.__file__) + "/aisp_was_here.py", "w"))
attempt("remount", lambda: os.system("mount -o remount,rw / 2>/dev/null") and 1 / 0)
attempt("allowed", lambda: open({str(allowed / "file")!r}, "w").write("x"))
attempt("tmp", lambda: open("/tmp/private", "w").write("x"))
attempt("shm", lambda: open("/dev/shm/private", "w").write("x"))
attempt("null", lambda: open("/dev/null", "w").write("x"))
with open("/proc/sys/kernel/hostname") as file:
    name = file.read()
attempt("sysctl", lambda: os.write(os.open("/proc/sys/kernel/hostname", os.O_WRONLY), name.encode()))
try:
    open({str(forbidden / "file")!r}, "w")
except OSError:
    pass
"""
    done = python(code, level, writable=(allowed,))
    assert done.ok, done.stderr
    results = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    refused = {"root", "etc", "python", "remount", "sysctl"}
    assert {name for name, answer in results.items() if answer == "refused"} == refused
    assert set(results) - refused == {"allowed", "tmp", "shm", "null"}
    assert (allowed / "file").read_text() == "x"
    assert not (forbidden / "file").exists()
    assert not Path("/tmp/private").exists()
    assert not Path("/dev/shm/private").exists()


def test_the_network_is_refused(level: Level) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"{TRY}\nimport socket\nattempt('tcp', lambda: socket.create_connection(('127.0.0.1', {port}), 5))"
        assert "refused" in python(code, level).stdout
        assert "done" in python(code, level, network=True).stdout


def test_an_own_loopback_leads_nowhere_else(level: Level) -> None:
    """A profiler may speak with itself; the machine's own ports stay out of reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""{TRY}
import socket
own = socket.create_server(("127.0.0.1", 0))
attempt("inside", lambda: socket.create_connection(own.getsockname(), 5))
attempt("outside", lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 5))
"""
        output = python(code, level, loopback=True).stdout
    assert "inside done" in output
    assert "outside refused" in output


def test_other_processes_are_out_of_sight_and_reach(level: Level) -> None:
    code = f"{TRY}\nimport os\nattempt('kill', lambda: os.kill({os.getpid()}, 0))\nprint(os.getpid() < 10)"
    output = python(code, level).stdout
    assert "kill refused" in output
    assert "True" in output


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print("up", flush=True)
"""


def start(code: str, level: Level, mark: str, **more: object) -> subprocess.Popen[str]:
    argv = wrap([sys.executable, "-c", code], level, **more)  # type: ignore[arg-type]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "AISP_TEST_MARK": mark})
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def lives(mark: str) -> list[int]:
    return [pid for pid in tree.marked("AISP_TEST_MARK", mark) if tree.start_time(pid) is not None]


@pytest.mark.parametrize("victim", ["program", "launcher", "first"])
def test_daemons_die_with_the_program_or_its_keepers(level: Level, tmp_path: Path, victim: str) -> None:
    mark = f"{tmp_path}-{victim}"
    with start(DAEMON + "time.sleep(600)", level, mark) as process:
        until(lambda: len(lives(mark)) == 4)
        first = tree.children(process.pid)[0]
        pid = {"program": program_pid(process.pid, level), "launcher": process.pid, "first": first}[victim]
        os.kill(pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    until(lambda: not lives(mark))


def test_daemons_die_when_the_program_ends(level: Level, tmp_path: Path) -> None:
    with start(DAEMON, level, str(tmp_path)) as process:
        assert process.wait() == 0
    until(lambda: not lives(str(tmp_path)))


def test_everything_dies_with_the_caller(tmp_path: Path) -> None:
    level = isolation.probe().level
    argv = wrap([sys.executable, "-c", HANG], level)
    code = f"import subprocess\nsubprocess.run({argv!r})"
    environment = {**os.environ, "AISP_TEST_MARK": str(tmp_path)}
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    with caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "up\n"
        caller.kill()
    until(lambda: not lives(str(tmp_path)))


@pytest.mark.parametrize("any_level", ["L1", "L2", "L3"])
def test_the_real_program_can_be_stopped_and_continued(any_level: Level, tmp_path: Path) -> None:
    if int(any_level[1]) > int(isolation.probe().level[1]):
        pytest.skip(f"{any_level} is not available here")
    with start(HANG, any_level, str(tmp_path)) as process:
        pid = program_pid(process.pid, any_level)
        assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-c", HANG.encode()]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: tree._stat(pid)[0] == "T")
        os.kill(pid, signal.SIGCONT)
        until(lambda: tree._stat(pid)[0] != "T")
        process.kill()


@pytest.mark.parametrize("any_level", ["L1", "L2", "L3"])
def test_code_signal_limits_and_descriptors_pass_through(any_level: Level) -> None:
    if int(any_level[1]) > int(isolation.probe().level[1]):
        pytest.skip(f"{any_level} is not available here")
    assert python("import sys; sys.exit(7)", any_level).returncode == 7
    assert python("import os; os.abort()", any_level).returncode == -signal.SIGABRT
    assert python("import os; os.kill(os.getpid(), 9)", any_level).returncode == -signal.SIGKILL
    limited = python("x = bytearray(2**31)", any_level, memory_bytes=2**30)
    assert "MemoryError" in limited.stderr
    limits = python("import resource as r; print(r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_FSIZE))", any_level)
    assert limits.stdout == f"(0, 0) ({64 * 2**30}, {64 * 2**30})\n"
    mine, theirs = os.pipe()
    argv = wrap(
        [sys.executable, "-c", f"import os, time; os.write({theirs}, b'x'); os.close({theirs}); time.sleep(600)"],
        any_level,
    )
    with subprocess.Popen(argv, pass_fds=[theirs]) as process:
        os.close(theirs)
        with open(mine, "rb") as pipe:
            assert pipe.read() == b"x"  # ends because no keeper holds the pipe open
        process.kill()


def test_an_ordinary_user_is_isolated_as_well(level: Level, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests have run as an ordinary user already")
    interpreter = next((path for path in (sys.executable, "/usr/bin/python3") if usable_by_others(path)), None)
    if interpreter is None:
        pytest.skip("no interpreter here may be executed by other users")
    code = f"{TRY}\nimport os\nattempt('root', lambda: os.mkdir('/tmp/../aisp-was-here'))\nprint(os.getuid())"
    argv = [interpreter, *wrap([interpreter, "-c", code], level)[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, **AS_NOBODY, check=False)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["root", "refused", "OSError", "65534"]  # EROFS, not merely a lack of permission


AS_NOBODY = {"user": 65534, "group": 65534, "cwd": "/", "env": {"PYTHONPATH": str(Path(__file__).parents[2])}}


def usable_by_others(path: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([path, "-P", "-c", "import aisp_mcp"], check=False, **AS_NOBODY).returncode == 0  # type: ignore[call-overload,no-any-return]
    return False


def test_a_hidden_node_cannot_be_opened_whatever_its_rights(level: Level) -> None:
    code = f"{TRY}\nattempt('shown', lambda: open('/dev/zero'))\nattempt('hidden', lambda: open('/dev/full'))"
    code += "\nimport os\nattempt('taken off', lambda: os.unlink('/dev/full'))"
    done = python(code, level, hidden=(Path("/dev/full"),))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["shown done", "hidden refused PermissionError", "taken off refused OSError"]


def test_no_namespace_can_be_made_inside(level: Level) -> None:
    code = f"{TRY}\nimport ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    code += "print(libc.unshare(0x10000000), os.strerror(ctypes.get_errno()))"  # CLONE_NEWUSER
    assert python(code, level).stdout == "-1 No space left on device\n"


def test_a_level_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "probe", lambda: Isolation("L1", ["limits"], ["L2: no user namespaces"]))
    assert isolation.demand("auto") == "L1"
    assert isolation.demand("L1") == "L1"
    for wish in ("L2", "L3", "L9", "strong"):
        with pytest.raises(Unavailable) as caught:
            isolation.demand(wish)
        assert "no user namespaces" in caught.value.message
