"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aisp_mcp.validity.issues import issues

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("aisp_mcp", "benchmarks", "labs", "docs", "results", "tests", "tools", "pyproject.toml")
FILE = re.compile(r"^`([\w./-]+)`:\n\n(`{3,})\w+\n(.*?)^\2$", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def recipes() -> dict[str, str]:
    """Sections of the page that hold code, by heading."""
    sections = re.split(r"^## (?!\w+: )", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {title: body for title, _, body in (s.partition("\n") for s in sections) if "```" in body}


def with_next_issue(body: str) -> str:
    """The recipe with the number that a new issue has today in the place of the one that the page shows."""
    shown = re.search(r"^id: (\d+)", body, re.MULTILINE)
    return re.sub(rf"\b{shown[1]}\b", str(len(issues()) + 1), body) if shown else body


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The repository as a contributor has it, without environment and history."""
    ignored = shutil.ignore_patterns("__pycache__", ".*cache")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def test_there_are_five_recipes_of_one_screen() -> None:
    assert list(recipes()) == [
        "A tool",
        "A benchmark",
        "A variant",
        "A C++ or CUDA variant",
        "A validity check",
    ]
    assert all(len(body.splitlines()) <= 60 for body in recipes().values())


def test_the_number_of_a_new_issue_is_computed() -> None:
    number = max(row.id for row in issues()) + 1
    assert with_next_issue("id: 3  # 30\n--issue 3\n") == f"id: {number}  # 30\n--issue {number}\n"
    assert f"--issue {number} " in with_next_issue(recipes()["A validity check"])


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("title", recipes())
def test_a_recipe_works(copy: Path, tmp_path_factory: pytest.TempPathFactory, title: str) -> None:
    body = with_next_issue(recipes()[title])
    added = [(name, text) for name, _, text in FILE.findall(body)]
    assert added
    for name, text in added:
        assert not (copy / name).exists(), f"{name} is taken"
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(text)
    (commands,) = COMMANDS.findall(body)
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(copy),
        "AISP_HOME": str(tmp_path_factory.mktemp("home")),
    }
    done = subprocess.run(["bash", "-ec", commands], cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    python = [sys.executable, "-m", "ruff"]
    files = [str(copy / name) for name, _ in added if name.endswith(".py")]
    for words in (["format", "--check"], ["check"]) if files else ():
        subprocess.run([*python, *words, *files], cwd=copy, check=True)
