"""tools/setup.sh with a stand-in for Python that writes down what pip was asked to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAS_DRIVER = any(map(os.path.exists, ("/dev/nvidiactl", "/proc/driver/nvidia")))

# `-m venv … DIR` makes DIR/bin/python a copy of itself, `-m pip …` is logged, questions are answered by variables.
STAND_IN = """#!/bin/sh
case "$1 $2" in
  "-m venv") echo "$*" >> "$LOG"; for last; do :; done
    mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
  "-m pip") echo "$*" >> "$LOG"; exit "${PIP_RC:-0}" ;;
  *) case "$2" in *torch*) [ -n "$TORCH" ] ;; *version_info*) [ -z "$OLD" ] ;; esac ;;
esac
"""


class Checkout:
    """A copy of what setup.sh reads, in a folder whose PATH has the basic tools and nothing of NVIDIA."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        for name in ("tools/setup.sh", "pyproject.toml", "constraints/cpu.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("bash", "dirname", "cat", "cksum", "cp", "mkdir", "rm", "sh", "touch"):
            program = shutil.which(tool)
            assert program, tool
            (self.bin / tool).symlink_to(program)
        self.add_program("python3", STAND_IN)

    def add_program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def setup(self, extras: str = "bench", **environment: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "LOG": str(self.log), **environment}
        command = [str(self.bin / "bash"), "tools/setup.sh", extras]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has an NVIDIA driver")
def test_without_a_driver_the_cpu_constraints_apply(checkout: Checkout) -> None:
    assert checkout.setup().returncode == 0
    made, installed = checkout.logged()
    assert made == "-m venv .venv"
    assert "--constraint constraints/cpu.txt" in installed
    assert "--editable .[bench]" in installed


def test_with_a_driver_they_do_not(checkout: Checkout) -> None:
    checkout.add_program("nvidia-smi", "#!/bin/sh\n")
    assert checkout.setup().returncode == 0
    assert "constraint" not in checkout.logged()[-1]


def test_a_torch_that_is_there_is_kept(checkout: Checkout) -> None:
    assert checkout.setup(TORCH="yes", VENV_FLAGS="--system-site-packages").returncode == 0
    made, installed = checkout.logged()
    assert made == "-m venv --system-site-packages .venv"
    assert "constraint" not in installed


def test_the_second_time_nothing_happens_until_the_requirements_change(checkout: Checkout) -> None:
    checkout.setup()
    before = checkout.logged()
    checkout.setup()
    assert checkout.logged() == before
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    checkout.setup()
    assert len(checkout.logged()) == len(before) + 1


def test_a_failed_install_is_tried_again(checkout: Checkout) -> None:
    assert checkout.setup(PIP_RC="1").returncode != 0
    assert checkout.setup().returncode == 0
    assert len(checkout.logged()) == 3


def test_other_extras_are_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.setup()
    checkout.setup("bench,dev")
    assert [line.split()[1] for line in checkout.logged()] == ["venv", "pip", "pip"]


def test_other_options_rebuild_our_environment(checkout: Checkout) -> None:
    checkout.setup()
    checkout.setup(VENV_FLAGS="--system-site-packages")
    assert [line.split()[1] for line in checkout.logged()] == ["venv", "pip", "venv", "pip"]


def test_an_environment_of_the_user_is_never_rebuilt(checkout: Checkout) -> None:
    own = checkout.folder / "own"
    (own / "bin").mkdir(parents=True)
    shutil.copy(checkout.bin / "python3", own / "bin/python")
    assert checkout.setup(VENV=str(own), VENV_FLAGS="--anything").returncode == 0
    assert [line.split()[1] for line in checkout.logged()] == ["pip"]
    assert not (checkout.folder / ".venv").exists()


def test_a_foreign_folder_at_our_place_is_not_touched(checkout: Checkout) -> None:
    (checkout.folder / ".venv").mkdir()
    (checkout.folder / ".venv/precious").touch()
    done = checkout.setup()
    assert done.returncode != 0
    assert "remove it, or name another one" in done.stderr
    assert (checkout.folder / ".venv/precious").exists()


def test_an_interrupted_attempt_is_repeated_from_the_start(checkout: Checkout) -> None:
    checkout.setup()
    (checkout.folder / ".venv/bin/python").unlink()
    assert checkout.setup().returncode == 0
    assert [line.split()[1] for line in checkout.logged()] == ["venv", "pip", "venv", "pip"]


def test_an_old_python_is_refused_with_what_to_do(checkout: Checkout) -> None:
    done = checkout.setup(OLD="yes")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "PYTHON=" in done.stderr


def test_an_index_for_torch_reaches_pip(checkout: Checkout) -> None:
    checkout.setup(TORCH_INDEX="https://example.org/cpu")
    assert "--extra-index-url https://example.org/cpu" in checkout.logged()[-1]


@pytest.mark.skipif(HAS_DRIVER, reason="the script looks for a driver outside of PATH as well")
def test_without_a_driver_torch_comes_from_its_cpu_index(checkout: Checkout) -> None:
    checkout.setup()
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in checkout.logged()[-1]
    checkout.setup("dev", TORCH_INDEX="none")
    assert "--extra-index-url" not in checkout.logged()[-1]
