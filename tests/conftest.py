"""Fixtures of all tests: a home of their own, the command line as a process, MCP clients, and tools to call."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import forks
import pytest
import tool_modules
from hypothesis import settings

from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import Settings

if TYPE_CHECKING:
    from mcp import Client

TOOLS = Path(__file__).parent / "front"
# The same in all tests: comparisons share processes with loaded libraries where the environment is the same.
os.environ["PYTHONPATH"] = os.pathsep.join([str(TOOLS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

settings.register_profile("aisp", deadline=None)  # no absolute times: a busy machine is not a failure
settings.load_profile("aisp")

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Connect = Callable[..., AbstractAsyncContextManager["Client"]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of items stay until the end: each search for garbage would look at all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup() -> None:
    """More test processes than cores: threads of tensor operations that spin for each other would only cost time."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """A tool that a test leaves behind fails that test, not another one later in the same process."""
    answer = yield
    left = [tool.name for tool in registry.loaded() if not tool.fn.__module__.startswith("aisp_mcp.")]
    assert not left, f"{item.nodeid} leaves the tools {left[:3]}; take cli_here or demo_tools"
    return answer


@pytest.fixture
def anyio_backend() -> str:
    """The server runs on asyncio, so do its tests."""
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh AISP_HOME with nothing of the caller's environment; the demonstration tools are named for processes.

    The processes of its jobs are forks.
    """
    for name in [name for name in os.environ if name.startswith("AISP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    monkeypatch.setenv("AISP_HOME", str(folder))
    monkeypatch.setenv("AISP_TOOL_MODULES", "front_tools")
    monkeypatch.setattr(os, "posix_spawn", forks.spawning(forks.SUPERVISOR, forks.STANDBY))
    return folder


@pytest.fixture
def demo_tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shipped catalogue and the tools of front_tools.py, in this process, for this test alone."""
    load_catalog(dataclasses.replace(Settings.from_env({}), tool_modules=""))
    monkeypatch.setattr(registry, "_TOOLS", dict(registry._TOOLS))
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))
    monkeypatch.setattr(registry, "_load", None)  # a command that is called here would leave its loader
    tool_modules.register("front_tools")
    yield
    sys.modules.pop("front_tools", None)


@pytest.fixture
def ctx(home: Path, demo_tools: None) -> Context:
    """A context over the fresh home."""
    return Context(settings=Settings.from_env())


@pytest.fixture
def cli(home: Path) -> Cli:
    """Run `aisp ARGS...` as a process of its own, a fork; keyword arguments are those of subprocess.run."""

    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", *args]
        options.setdefault("timeout", 50)
        for name, value in (("stdin", subprocess.DEVNULL), ("stdout", subprocess.PIPE), ("stderr", subprocess.PIPE)):
            options.setdefault(name, value)
        return forks.run(argv, text=True, **options)

    return run


@pytest.fixture
def cli_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same in this process, and jobs too: no interpreters start, and comparisons share their loaded libraries."""
    from aisp_mcp.front.cli.main import main

    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")
    monkeypatch.delenv("AISP_TOOL_MODULES")  # the registry of this process is for all tests

    def run(*args: str, cwd: Path | None = None, timeout: float = 0) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(cwd or "."), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                with mock.patch.dict(os.environ):  # flags such as --artifacts-dir are variables of the whole process
                    code = main(args)
            except SystemExit as end:
                code = int(end.code or 0)
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def least_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons in this process with the preset quick measure as little as they can."""
    from harness_support import LEAST

    from aisp_mcp.judge.presets import PRESETS

    monkeypatch.setitem(PRESETS, "quick", dataclasses.replace(LEAST, name="quick"))


@pytest.fixture
def recorded_here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Problems of other suites are recorded by a fork of a process that has loaded torch, without isolation."""
    pytest.importorskip("torch")
    import recording

    from aisp_mcp.suites.adapters import adapt

    def run(argv: list[str], **_: Any) -> SimpleNamespace:
        printed = tmp_path_factory.mktemp("recorded") / "output"
        recording.record(argv[-2:], str(printed))
        return SimpleNamespace(stdout=printed.read_text(), stderr="", timed_out=False)

    monkeypatch.setattr(adapt, "run", run)


@pytest.fixture
def connect(home: Path, demo_tools: None) -> Connect:
    """`async with connect(era=..., over="memory" | "stdio") as client`: the real server and a real client."""

    @asynccontextmanager
    async def open_client(era: str = "auto", over: str = "memory") -> AsyncIterator[Client]:
        from front_support import over_pipes
        from mcp import Client

        from aisp_mcp.front.mcp.server import Handlers, build_server

        memory = over == "memory"
        server: Any = build_server(Handlers(Context(settings=Settings.from_env()))) if memory else over_pipes()
        async with Client(server, mode=era, read_timeout_seconds=50) as client:
            yield client

    return open_client
