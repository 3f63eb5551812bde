"""A process that runs one tool loads its family and no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Each case is a fork, so that it begins without a tool. Those that bring all tools follow when everything else that
# these import is loaded.
SCRIPT = """
import json, os, sys
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_catalog, load_command, load_tool
from aisp_mcp.settings import Settings

def families():
    return sorted({tool.family for tool in registry.loaded()})

def answer(load, arguments):
    load(arguments, Settings.from_env({}))
    first = families()
    if load is load_command:
        registry.get("aisp_hw_disk")
    return first, families(), len(registry.tools()), registry.names()

def ask(load, arguments):
    if os.fork() == 0:
        print(json.dumps([arguments, *answer(load, arguments)]), flush=True)
        os._exit(0)
    os.wait()

few, all = json.loads(sys.argv[1])
for case in few:
    ask(load_tool if isinstance(case, str) else load_command, case)
load_catalog(Settings.from_env({}))
for name in [name for name in sys.modules if name.startswith("aisp_mcp.") and name.endswith(".tools")]:
    del sys.modules[name]
registry._TOOLS.clear()
registry._ALIASES.clear()
for case in all:
    ask(load_tool if isinstance(case, str) else load_command, case)
"""
FAMILIES = {"aisp_status": "machine", "aisp_hw_disk": "probes"}
COMMANDS = [["job", "list", "--json"], ["aisp_job_list"]]
NO_COMMANDS: list[list[str]] = [[], ["job"], ["job", "lsit"], ["--list"]]
UNKNOWN = "aisp_no_such_tool"
Answer = tuple[list[str], list[str], int, list[str]]  # families at first and in the end, number of tools, names


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """Tools that a process has registered after it has loaded one by name, or a command by words."""
    cases = json.dumps([[*FAMILIES, *COMMANDS], [*NO_COMMANDS, UNKNOWN]])
    done = subprocess.run([sys.executable, "-c", SCRIPT, cases], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {str(arguments): tuple(answer) for arguments, *answer in lines}


@pytest.mark.parametrize("name", FAMILIES)
def test_one_tool_brings_its_family_alone(answers: dict[str, Answer], name: str) -> None:
    families, *_, names = answers[name]
    assert name in names
    assert FAMILIES[name] in families
    assert "jobs" not in families


def test_an_unknown_tool_brings_all(answers: dict[str, Answer]) -> None:
    families, *_, names = answers[UNKNOWN]
    assert UNKNOWN not in names
    assert {"machine", "probes", "jobs"} <= set(families)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_brings_its_family_and_the_others_when_they_are_asked_for(
    answers: dict[str, Answer], words: list[str]
) -> None:
    first, second, tools, names = answers[str(words)]
    assert first == ["jobs"]
    assert second == ["jobs", "probes"]
    assert len(names) > tools > 90


@pytest.mark.parametrize("words", NO_COMMANDS)
def test_words_that_name_no_command_bring_all(answers: dict[str, Answer], words: list[str]) -> None:
    assert {"jobs", "probes", "machine"} <= set(answers[str(words)][0])


def test_a_user_s_tool_with_a_shipped_name_is_refused_although_that_family_is_not_loaded(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from aisp_mcp.server.context import Context\nfrom aisp_mcp.records import Params, Record\n"
        "from aisp_mcp.server.registry import MS, READS, tool\n\n\n"
        '@tool(cli="mine disk", effect=READS, cost=MS)\n'
        'def aisp_hw_disk(p: Params, ctx: Context) -> Record:\n    """Say nothing."""\n    return Record()\n'
    )
    monkeypatch.setenv("AISP_TOOL_MODULES", "mine")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = cli("job", "list")
    assert done.returncode != 0
    assert "TOOL_MODULE" in done.stderr
    assert "two tools named aisp_hw_disk" in done.stderr
