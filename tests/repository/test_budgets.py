"""Each rule is broken once here, in a tree of its own, so that none of them can pass by never looking."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LoadTool = Callable[[str], ModuleType]


BROKEN = [
    ("init", "aisp_mcp/x/__init__.py", "import os\nVALUE = os.getcwd()\n"),
    ("init", "aisp_mcp/x/__init__.py", "def helper(): ...\n"),
    ("sleep", "tests/test_a.py", "import time\ntime.sleep(1)\n"),
    ("sleep", "tests/test_a.py", "from asyncio import sleep as pause\nasync def f(): await pause(1)\n"),
]
WITHIN = [
    ("aisp_mcp/x/__init__.py", '"""A room."""\nfrom a import b\n__all__ = ["b"]\n__version__ = "1"\n'),
    ("aisp_mcp/a.py", "import time\ntime.sleep(1)\n"),
    ("tests/helpers.py", "import time\ntime.sleep(1)\n"),
]


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_a_broken_rule_is_found(load_tool: LoadTool, rule: str, path: str, source: str) -> None:
    assert [f.rule for f in load_tool("budgets").measure_file(path, source)] == [rule]


@pytest.mark.parametrize(("path", "source"), WITHIN)
def test_a_kept_rule_is_not(load_tool: LoadTool, path: str, source: str) -> None:
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


def budgets(root: Path) -> subprocess.CompletedProcess[str]:
    """The real script over that tree."""
    command = [sys.executable, str(ROOT / "tools/budgets.py"), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
