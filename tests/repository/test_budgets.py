"""Each budget is broken once here, in a tree of its own, so that none of them can pass by never looking."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LoadTool = Callable[[str], ModuleType]


def long_function(lines: int) -> str:
    return "def f():\n" + '    """Not counted.\n\n    Really.\n    """\n' + "    x = 1\n" * (lines - 1)


def wide_class(fields: int) -> str:
    return "class C:\n    shared: ClassVar[int] = 0\n" + "".join(f"    f{i}: int = 0\n" for i in range(fields))


def wide_init(fields: int) -> str:
    return "class C:\n    def __init__(self):\n" + "".join(f"        self.f{i} = 0\n" for i in range(fields))


BROKEN = [
    ("file", "aisp_mcp/a.py", "x = 1\n" * 401),
    ("file", "tests/test_a.py", "x = 1\n" * 601),
    ("function", "aisp_mcp/a.py", long_function(41)),
    ("function", "aisp_mcp/a.py", "class C:\n    async " + long_function(41).replace("\n", "\n    ")),
    ("function", "aisp_mcp/machine/tools.py", long_function(26)),
    ("fields", "aisp_mcp/a.py", wide_class(13)),
    ("fields", "aisp_mcp/a.py", wide_init(13)),
    ("init", "aisp_mcp/x/__init__.py", "import os\nVALUE = os.getcwd()\n"),
    ("init", "aisp_mcp/x/__init__.py", "def helper(): ...\n"),
    ("sleep", "tests/test_a.py", "import time\ntime.sleep(1)\n"),
    ("sleep", "tests/test_a.py", "from asyncio import sleep as pause\nasync def f(): await pause(1)\n"),
]
WITHIN = [
    ("aisp_mcp/a.py", "x = 1\n" * 400),
    ("aisp_mcp/a.py", long_function(40)),
    ("aisp_mcp/machine/tools.py", long_function(25)),
    ("aisp_mcp/a.py", wide_class(12)),
    ("aisp_mcp/x/__init__.py", '"""A room."""\nfrom a import b\n__all__ = ["b"]\n__version__ = "1"\n'),
    ("aisp_mcp/a.py", "import time\ntime.sleep(1)\n"),
    ("tests/helpers.py", "import time\ntime.sleep(1)\n"),
]


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_a_broken_budget_is_found(load_tool: LoadTool, rule: str, path: str, source: str) -> None:
    assert [f.rule for f in load_tool("budgets").measure_file(path, source)] == [rule]


@pytest.mark.parametrize(("path", "source"), WITHIN)
def test_a_kept_budget_is_not(load_tool: LoadTool, path: str, source: str) -> None:
    assert list(load_tool("budgets").measure_file(path, source)) == []


def test_an_import_cycle_is_found_and_one_for_type_checking_as_well(tmp_path: Path) -> None:
    package = tmp_path / "aisp_mcp"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from aisp_mcp import b\n")
    (package / "b.py").write_text("import aisp_mcp.a\n")
    done = budgets(tmp_path)
    assert (done.returncode, "cycles" in done.stdout) == (1, True)
    (package / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aisp_mcp import b\n")
    hidden = budgets(tmp_path)
    assert (hidden.returncode, "cycles" in hidden.stdout) == (1, True)
    (package / "a.py").write_text("")
    assert budgets(tmp_path).returncode == 0


WAIVER = "function aisp_mcp/a.py:f {value}  measured in one piece on purpose\n"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [(60, None), (59, "waived up to 59"), (61, "shrank to 60")],
    ids=["exact", "grew", "shrank"],
)
def test_a_waiver_holds_for_the_measured_value_only(tmp_path: Path, value: int, complaint: str | None) -> None:
    tree(tmp_path, {"aisp_mcp/a.py": long_function(60), "tools/waivers.txt": WAIVER.format(value=value)})
    done = budgets(tmp_path)
    assert done.returncode == (1 if complaint else 0)
    assert complaint is None or complaint in done.stdout


def test_a_waiver_that_nobody_needs_is_an_error(tmp_path: Path) -> None:
    tree(tmp_path, {"aisp_mcp/a.py": "", "tools/waivers.txt": WAIVER.format(value=60)})
    assert "nobody needs" in budgets(tmp_path).stdout


def test_the_list_of_waivers_may_not_grow_again(tmp_path: Path) -> None:
    second = WAIVER.format(value=60).replace("a.py", "b.py")
    sources = {"aisp_mcp/a.py": long_function(60), "aisp_mcp/b.py": long_function(60)}
    tree(tmp_path, {**sources, "tools/waivers.txt": WAIVER.format(value=60)})
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (tmp_path / "tools/waivers.txt").write_text(WAIVER.format(value=60) + second)
    done = budgets(tmp_path)
    assert done.returncode == 1
    assert "may only shrink" in done.stdout


def tree(root: Path, files: dict[str, str]) -> None:
    """Write a small tree that has a package."""
    for name, text in {"aisp_mcp/__init__.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def budgets(root: Path) -> subprocess.CompletedProcess[str]:
    """The real script over that tree."""
    command = [sys.executable, str(ROOT / "tools/budgets.py"), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
