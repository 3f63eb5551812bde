"""Modules that help, lists and the dashboard do not load, in one process: what any loads is there at the end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"mcp", "torch", "triton", "numpy", "rich", "psutil", "pynvml", "jinja2", "yaml", "sqlite3"}
HELP = [["--version"], ["demo", "echo", "--help"], ["demo"], ["--help"], ["--list"]]
SCRIPT = f"""
import contextlib, io, json, sys

def step(name, do):
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        do()
    print(json.dumps([name, said.getvalue(), list(sys.modules)]), flush=True)

def dashboard():
    import aisp_mcp.front.dashboard.command, aisp_mcp.front.dashboard.serve

from aisp_mcp.front.cli.main import main
for argv in {HELP}:
    step(" ".join(argv), lambda: main(argv))
from aisp_mcp.front.mcp.main import main
step("server", lambda: main(["--list", "--json"]))
step("dashboard", dashboard)
"""
Steps = dict[str, tuple[str, set[str]]]


@pytest.fixture(scope="module")
def steps(shared_env: dict[str, str]) -> Steps:
    """Output of each step, and the modules after it."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in shared_env.items():
            environment.setenv(name, value)
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=50, check=True)
    return {name: (said, set(modules)) for name, said, modules in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("words", [" ".join(argv) for argv in HELP])
def test_help_loads_nothing_heavy(steps: Steps, words: str) -> None:
    said, modules = steps[words]
    assert said.strip()
    assert not HEAVY & modules


def test_the_server_s_list_does_not_pay_for_the_protocol(steps: Steps) -> None:
    said, modules = steps["server"]
    assert {"aisp_demo_echo", "aisp_suggest_tools"} <= {tool["name"] for tool in json.loads(said)}
    assert not HEAVY & modules


def test_the_dashboard_does_not_import_the_protocol_library(steps: Steps) -> None:
    _, modules = steps["dashboard"]
    assert "aisp_mcp.front.dashboard.serve" in modules
    assert not {"mcp", "mcp_types", "torch", "numpy"} & modules
