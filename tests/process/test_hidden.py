"""Secrets and servers of the user that an isolated program looks for, and does not find."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from aisp_mcp.process import isolation, tree
from aisp_mcp.process.isolation import Level, wrap
from aisp_mcp.process.run import Completed, run

LEVELS: list[Level] = ["L2", "L3"]
FINDER = """
import os, sys
for name in sys.argv[1].split("|"):  # files that are words of the command are shown to it
    try:
        print(os.path.basename(name), os.listdir(name) if os.path.isdir(name) else open(name).read().strip())
    except OSError as error:
        print(os.path.basename(name), type(error).__name__)
"""
CALLER = """
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as mine:
            try:
                mine.connect(name)
                print("reached")
            except OSError as error:
                print(type(error).__name__)
"""


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Level:
    return available(request.param)


def available(level: Level) -> Level:
    reached = isolation.probe()
    if reached.level < level:
        pytest.skip(f"{level} is not available here: {reached.missing}")
    return level


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with secrets and a project, outside of /tmp, which is hidden as a whole."""
    home = Path("/var/lib") / f"aisp-test-{os.getpid()}"
    try:
        home.mkdir(mode=0o700)
    except OSError:
        home = Path.cwd() / f".aisp-test-{os.getpid()}"
        home.mkdir(mode=0o700)
    for name in (".ssh/id", ".aws/credentials", ".netrc", ".pyenv/lib/module.py", "project/data", "store/aisp.db"):
        (home / name).parent.mkdir(exist_ok=True, parents=True)
        (home / name).write_text("planted")
    (home / ".config").symlink_to(home / "project" / "config")
    (home / "project" / "config").mkdir()
    (home / "project" / "config" / "token").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AISP_HOME", str(home / "store"))
    yield home  # type: ignore[misc]
    subprocess.run(["rm", "-rf", str(home)], check=True)


def python(code: str, level: Level, *args: str, **more: object) -> Completed:
    return run(wrap([sys.executable, "-I", "-c", code, *args], level, **more), timeout_s=40)  # type: ignore[arg-type]


def test_secrets_of_the_user_are_not_there(level: Level, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(user / "store")  # not even where the caller works
    monkeypatch.setattr(sys, "path", [*sys.path, str(user / ".pyenv" / "lib")])
    names = [".ssh", ".aws/credentials", ".netrc", ".config/token", "store", "project/config", ".pyenv/lib/module.py"]
    words = [*(str(user / name) for name in [*names, "project/data"]), "/etc/shadow"]
    done = python(FINDER, level, "|".join(words))
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines == {
        ".ssh": "[]",
        "credentials": "FileNotFoundError",
        ".netrc": "PermissionError",
        "token": "FileNotFoundError",
        "store": "[]",
        "config": "[]",
        "module.py": "planted",  # a folder that Python imports from
        "data": "planted",
        "shadow": "PermissionError",
    }, done.stderr


def test_a_folder_to_write_to_is_shown_inside_the_store(level: Level, user: Path) -> None:
    mine, other = user / "store" / "runs" / "1", user / "store" / "runs" / "2"
    mine.mkdir(parents=True)
    other.mkdir()
    code = (
        f"import os\nopen({str(mine / 'made')!r}, 'w').write('x')\nprint(os.listdir({str(user / 'store' / 'runs')!r}))"
    )
    done = python(code, level, writable=[mine])
    assert done.stdout == "['1']\n", done.stderr
    assert (mine / "made").read_text() == "x"


def test_variables_name_further_places(user: Path) -> None:
    named = user / "project" / "cloud.json"
    named.touch()
    secret_paths = isolation.secret_paths(
        {"HOME": str(user), "GOOGLE_APPLICATION_CREDENTIALS": str(named), "KUBECONFIG": "/nowhere"}
    )
    assert {str(named), str(user / ".ssh"), str(user / "project" / "config")} <= set(secret_paths)
    assert not {str(user), "/", "/etc", "/nowhere"} & set(secret_paths)
    assert not [folder for folder in secret_paths for other in secret_paths if folder.startswith(other + "/")]


@pytest.fixture
def servers(user: Path) -> Iterator[list[str]]:
    """Servers of the user's, by path: one in the home folder, one where a link leads, one of datagrams."""
    made, kinds = [], {"server": socket.SOCK_STREAM, "datagrams": socket.SOCK_DGRAM}
    for name, kind in kinds.items():
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(user / "project" / name))
        if kind is socket.SOCK_STREAM:
            listener.listen()
        made.append(listener)
    (user / "link").symlink_to(user / "project" / "server")
    yield [str(user / name) for name in ("project/server", "project/datagrams", "link")]
    for listener in made:
        listener.close()


def test_the_attack_on_a_server_works_below_l3(servers: list[str]) -> None:
    assert python(CALLER, available("L2"), *servers).stdout.count("reached") == 3


def test_no_server_of_the_user_can_be_reached_by_its_path(servers: list[str], user: Path) -> None:
    level = available("L3")
    marker = user / "project" / "data"  # its folder is one that the program needs to see
    done = python(CALLER, level, *servers, str(marker))
    assert done.stdout.split()[:6] == ["ConnectionRefusedError"] * 6, done.stderr
    assert "reached" not in done.stdout


def test_a_server_that_begins_later_cannot_be_reached_either(user: Path) -> None:
    level = available("L3")
    path = user / "project" / "later"
    program = wrap([sys.executable, "-I", "-c", "print('up', flush=True); input()\n" + CALLER, str(path)], level)
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            output, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert "reached" not in output
    assert output.split()


HONEST = """
import multiprocessing.connection, os, socket, sys, threading
listener = multiprocessing.connection.Listener(sys.argv[1], "AF_UNIX")
def serve():
    with listener.accept() as wire:
        wire.send(wire.recv() + 1)
thread = threading.Thread(target=serve)
thread.start()
with multiprocessing.connection.Client(sys.argv[1]) as wire:
    wire.send(41)
    print(wire.recv())
thread.join()
left, right = socket.socketpair()
left.send(b"x")
print(right.recv(1))
"""


@pytest.mark.parametrize("where", ["/tmp/own", "{}/own"])
def test_a_program_speaks_with_itself_over_its_own_sockets(level: Level, tmp_path: Path, where: str) -> None:
    """The honest twin: libraries hand file descriptors from process to process this way."""
    done = python(HONEST, level, where.format(tmp_path), writable=[tmp_path])
    assert done.stdout == "42\nb'x'\n", done.stderr


FILLS = """
import os, sys, time
number = 0
while True:
    with open(os.path.join(sys.argv[1], f"file-{number}"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    number += 1
    time.sleep(0 if number < 100 else 0.01)
"""


@pytest.mark.parametrize("any_level", ["L1", *LEVELS])
def test_a_program_that_fills_the_disk_is_ended(any_level: Level, tmp_path: Path) -> None:
    level = available(any_level)
    folder = tmp_path / "own"
    folder.mkdir()
    done = python(FILLS, level, str(folder), writable=[folder], disk_bytes=32 << 20)
    assert done.returncode == (-signal.SIGKILL if level == "L1" else -signal.SIGXFSZ)
    assert "it used more than 32 MiB of disk space" in done.stderr
    assert len(list(folder.iterdir())) >= 32


def test_a_program_that_writes_what_it_may_is_left_alone(tmp_path: Path) -> None:
    level = isolation.probe().level
    code = FILLS.replace("while True", "while number < 160") + "\ntime.sleep(1.2)\nprint('done')"
    done = python(code, level, str(tmp_path), writable=[tmp_path], disk_bytes=256 << 20)
    assert (done.returncode, done.stdout) == (0, "done\n")


STOPS = "import os, signal, time\nos.kill({}, signal.SIGSTOP)\nprint('stopped', flush=True)\ntime.sleep(600)"


def test_a_program_that_stops_its_caller_is_ended(tmp_path: Path) -> None:
    """At L1 a program can signal whoever measures it; without a watchdog both would wait for ever."""
    argv = wrap([sys.executable, "-I", "-c", STOPS.format("os.getppid()")], "L1")
    caller = f"import subprocess\nprint(subprocess.run({argv!r}, stdout=subprocess.DEVNULL).returncode, flush=True)"
    with subprocess.Popen([sys.executable, "-c", caller], stdout=subprocess.PIPE, text=True) as process:
        until(lambda: tree.stopped(process.pid))
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert output == f"{-signal.SIGKILL}\n"


def test_many_programs_start_at_once(level: Level) -> None:
    """Each makes its mounts in a namespace of its own."""
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(python("print(1)", level).stdout)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["1\n"] * 6


def test_folders_can_be_hidden_in_a_visible_working_folder_below_tmp(
    level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, store = tmp_path / "project", tmp_path / "store"
    for name in ("suites/solution.py", "notes/solution.py", "run/candidate.py"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text("planted")
    (store / "run").mkdir(parents=True)
    shown = store / "run" / "candidate.py"
    shown.write_text("planted")
    monkeypatch.chdir(project)
    monkeypatch.setenv("AISP_HOME", str(store))
    names = [project / "suites/solution.py", project / "notes/solution.py", store]
    words = "|".join(map(str, names))
    done = python(FINDER, level, words, str(shown), hidden=[project / "suites", tmp_path / "missing"])
    expected = "solution.py FileNotFoundError\nsolution.py planted\nstore ['run']\n"
    assert done.stdout == expected, done.stderr
    whole = python(FINDER, level, words, str(project / "run/candidate.py"), hidden=[project])
    assert whole.stdout == "solution.py FileNotFoundError\n" * 2 + "store FileNotFoundError\n", whole.stderr
