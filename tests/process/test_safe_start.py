"""Children of this package start in a folder where somebody has left modules named like those of the library."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aisp_mcp
from aisp_mcp.machine.probes import probe_runner
from aisp_mcp.machine.probes.children import nccl
from aisp_mcp.process import python

PACKAGE = Path(aisp_mcp.__file__).parent
SHADOWED = ("selectors", "random", "statistics", "platform", "json", "socket", "multiprocessing", "argparse")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; afterwards none of its modules may have been imported by anybody."""
    folder = tmp_path / "work"
    folder.mkdir()
    seen = tmp_path / "imported"
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(f"open({str(seen)!r}, 'a').write({name!r} + '\\n')\nraise ImportError\n")
    monkeypatch.chdir(folder)
    return seen


def test_the_attack_works_on_a_child_that_is_started_carelessly(hostile: Path) -> None:
    careless = subprocess.run(
        [sys.executable, "-m", "aisp_mcp.machine.probes.children.child", "none"], stderr=subprocess.DEVNULL
    )
    assert careless.returncode != 2
    assert hostile.read_text().startswith("json\n")


@pytest.mark.parametrize("variable", ["", ":", ".:"])
def test_the_probes_child_imports_nothing_from_the_working_folder(hostile: Path, variable: str) -> None:
    environ = {**os.environ, **python.search_path({"PYTHONPATH": variable.replace(".", "/nowhere")}, os.getcwd())}
    done = subprocess.run(probe_runner.argv("none"), env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "unknown probe none\n")
    assert not hostile.exists()


def test_the_server_imports_nothing_from_the_working_folder(hostile: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "aisp_mcp", "--list"]
    done = subprocess.run(argv, env={**os.environ, "AISP_HOME": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not hostile.exists()


def test_reading_in_another_process_imports_nothing_from_the_working_folder(hostile: Path, tmp_path: Path) -> None:
    """The fork server is started by the library's own `python -c`."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": []}))
    program = f"""
import sys; sys.path.remove("")
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import Settings
settings = Settings.from_env()
load_catalog(settings)
from aisp_mcp.front.subprocess_calls import SubprocessCalls
print(SubprocessCalls()("aisp_profile_kernels", {{"profile": {str(trace)!r}}}, Context(settings=settings)).tool)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "AISP_HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert not hostile.exists()
    assert done.stdout, done.stderr


def test_ranks_are_started_as_safely_as_their_launcher() -> None:
    argv = nccl.argv(2)
    assert argv[1:4] == ["-P", "-m", "torch.distributed.run"]
    assert argv[argv.index("--no-python") + 1 :] == [
        sys.executable,
        "-P",
        "-m",
        "aisp_mcp.machine.probes.children.nccl",
    ]


def test_entries_of_the_search_path_mean_the_same_everywhere() -> None:
    assert python.search_path({"PYTHONPATH": ":/a:b:"}, "/there") == {"PYTHONPATH": "/a:/there/b"}
    assert python.search_path({"PYTHONPATH": ":"}, "/there") == {"PYTHONPATH": ""}


def test_no_interpreter_is_started_with_the_working_folder_on_its_path() -> None:
    """Every list of words that begins with this interpreter and names a module or a program text is safe."""
    careless = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text if "sys.executable" in text else "")):
            if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                words = [word.value for word in node.elts if isinstance(word, ast.Constant)]
                if {"-m", "-c"} & set(words) and not {"-P", "-I"} & set(words):
                    careless.append(f"{path.name}:{node.lineno}")
    assert not careless
