"""Commands end when they should, and nothing of them stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from aisp_mcp.errors import ProcessError
from aisp_mcp.process import tree
from aisp_mcp.process.run import run

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sys.stdout.write(str(os.getpid())); sys.stdout.flush()
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_exit_code_and_no_shell() -> None:
    done = run([sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)", "$(id); *"], timeout_s=PATIENCE_S)
    assert (done.stdout, done.returncode, done.ok) == ("$(id); *\n", 3, False)


def test_stdin_larger_than_a_pipe() -> None:
    done = run(python("import sys; print(len(sys.stdin.read()))"), timeout_s=PATIENCE_S, stdin="x" * 3_000_000)
    assert done.stdout == "3000000\n"


def test_a_child_that_does_not_read_its_input() -> None:
    assert run(python("pass"), timeout_s=PATIENCE_S, stdin="x" * 3_000_000).ok


def test_a_flood_is_drained_and_bounded() -> None:
    code = "import sys\nfor i in range(1000): sys.stdout.write('a' * 50_000)\nsys.stdout.write('END')"
    done = run(python(code), timeout_s=30, max_output=10_000)
    assert done.ok
    assert done.truncated
    assert len(done.stdout) < 10_200
    assert done.stdout.endswith("END")


def test_time_out_kills_a_daemonised_grandchild() -> None:
    for timeout_s in (1, 4, 16):  # until the grandchild has begun before it
        done = run(python(DAEMON + "time.sleep(600)"), timeout_s=timeout_s)
        assert done.timed_out
        if done.stdout:
            break
    until(lambda: tree.start_time(int(done.stdout)) is None)  # killed before, but the kernel takes its moment


def test_normal_end_does_not_wait_for_a_daemon_and_leaves_none() -> None:
    done = run(python(DAEMON), timeout_s=PATIENCE_S)  # the daemon would take ten minutes
    assert done.ok
    until(lambda: tree.start_time(int(done.stdout)) is None)  # killed, and soon reaped by whoever has adopted it


def test_environment_is_replaced_and_folder_is_used(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), 'HOME' in os.environ)"
    assert run(python(code), timeout_s=PATIENCE_S, env={}, cwd=tmp_path).stdout == f"{tmp_path} False\n"


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(ProcessError) as caught:
        run(["no-such-program-here"], timeout_s=1)
    assert caught.value.code == "NOT_STARTED"


def test_check_raises_with_last_words() -> None:
    with pytest.raises(ProcessError) as caught:
        run(python("raise SystemExit('the disk is gone')"), timeout_s=PATIENCE_S, check=True)
    assert caught.value.code == "CRASHED"
    assert "the disk is gone" in str(caught.value.hint)


def test_check_raises_on_time_out() -> None:
    with pytest.raises(ProcessError) as caught:
        run(python("import time; time.sleep(600)"), timeout_s=0.2, check=True)
    assert caught.value.code == "TIMEOUT"


def test_a_signal_is_a_negative_code() -> None:
    assert run(python("import os; os.kill(os.getpid(), 9)"), timeout_s=PATIENCE_S).returncode == -9


def test_start_time_tells_a_reused_pid_apart() -> None:
    started = tree.start_time(os.getpid())
    assert started is not None
    assert tree.alive(os.getpid(), started)
    assert not tree.alive(os.getpid(), started + 1)
