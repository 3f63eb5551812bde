"""A process that runs one tool loads its family and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from aisp_mcp import registry
from aisp_mcp.dispatch import load_tool
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


@pytest.mark.parametrize(("name", "family"), [("aisp_status", "machine"), ("aisp_hw_disk", "hardware")])
def test_one_tool_brings_its_family_alone(name: str, family: str) -> None:
    families, known = loaded(name)
    assert known
    assert family in families
    assert "jobs" not in families


def test_an_unknown_tool_brings_all() -> None:
    families, known = loaded("aisp_no_such_tool")
    assert not known
    assert {"machine", "hardware", "jobs"} <= set(families)
