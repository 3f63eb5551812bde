"""A process that runs one tool loads its family and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import sys
from pathlib import Path
from typing import Any
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_tool
from aisp_mcp.settings import Settings
load_tool(sys.argv[1], Settings.from_env({}))
print(*sorted({tool.family for tool in registry.tools()}))
print(sys.argv[1] in registry.names())
"""


def loaded(name: str) -> tuple[list[str], bool]:
    """(families, whether the tool is registered) in a fresh process."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=True)
    families, known = done.stdout.splitlines()
    return families.split(), known == "True"


@pytest.mark.parametrize(("name", "family"), [("aisp_status", "machine"), ("aisp_hw_disk", "probes")])
def test_one_tool_brings_its_family_alone(name: str, family: str) -> None:
    families, known = loaded(name)
    assert known
    assert family in families
    assert "jobs" not in families


def test_an_unknown_tool_brings_all() -> None:
    families, known = loaded("aisp_no_such_tool")
    assert not known
    assert {"machine", "probes", "jobs"} <= set(families)


COMMAND = """
import sys
from pathlib import Path
from typing import Any
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_command
from aisp_mcp.settings import Settings
load_command(sys.argv[1:], Settings.from_env({}))
def families(): return sorted({tool.family for tool in registry.loaded()})
print(*families())
registry.get("aisp_hw_disk")
print(*families())
print(len(registry.tools()), len(registry.names()) > len(registry.tools()))
"""


@pytest.mark.parametrize("words", [["job", "list", "--json"], ["aisp_job_list"]])
def test_a_command_brings_its_family_and_the_others_when_they_are_asked_for(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True)
    first, second, everything = done.stdout.splitlines()
    assert first.split() == ["jobs"]
    assert second.split() == ["jobs", "probes"]
    count, aliases = everything.split()
    assert int(count) > 90
    assert aliases == "True"


@pytest.mark.parametrize("words", [[], ["job"], ["job", "lsit"], ["--list"]])
def test_words_that_name_no_command_bring_all(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True)
    assert {"jobs", "probes", "machine"} <= set(done.stdout.splitlines()[0].split())


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
