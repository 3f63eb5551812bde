"""The command-line options that server and CLI share, and the context they open."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container
from dataclasses import fields
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.jobs.executors.placement import EXECUTORS
from aisp_mcp.server.context import Context
from aisp_mcp.settings import ClusterSettings, Settings, written

SELECTION = {
    "toolsets": "families to offer, and no others: default, all, or the families of --list",
    "tools": "single tools to offer, by name; alone, or on top of --toolsets",
    "exclude-tools": "tools that are never offered",
}
SWITCHES = {
    "read-only": "offer only tools that read",
    "lite": "list four tools: find, call, wait and triage",
}


_SHARED = {
    "bench_root": "where benchmarks are found; may be repeated (or AISP_BENCH_ROOT)",
    "allow_write": "a folder outside AISP_HOME that tools may write to; may be repeated (or AISP_ALLOW_WRITE)",
}


def add_shared(parser: argparse.ArgumentParser, own: Container[str] = ()) -> None:
    """--bench-root and --allow-write, but for those that the tool has as parameters of its own."""
    for name, words in _SHARED.items():
        if name not in own:
            parser.add_argument(f"--{name.replace('_', '-')}", metavar="DIR", action="append", help=words)


def add_home(parser: argparse.ArgumentParser) -> None:
    """--artifacts-dir."""
    parser.add_argument("--artifacts-dir", metavar="DIR", help="where runs and profiles are kept (or AISP_HOME)")


def add_executor(parser: argparse.ArgumentParser, taken: Container[str]) -> None:
    """--executor and what is asked of a cluster. taken: names of the tool's own arguments, which come first."""
    group = parser.add_argument_group("executor", "what runs the job")
    for item in fields(ClusterSettings):
        if item.name not in taken:
            choices = EXECUTORS if item.name == "executor" else None
            words, env = item.metadata["help"].partition(".")[0], item.metadata["env"]
            kind = None if choices else "N" if item.type == "int" else "TEXT"
            more: dict[str, Any] = {"nargs": "?", "const": "1"} if item.name == "array" else {}
            name, said = f"--{item.name}", f"{words} (or {env})"
            group.add_argument(name, dest=f"_{item.name}", choices=choices, metavar=kind, help=said, **more)


def export_executor(options: argparse.Namespace) -> None:
    """Write those options into the environment, where the table of settings is read from."""
    for item in fields(ClusterSettings):
        value = getattr(options, f"_{item.name}", None)
        if value is not None:
            os.environ[item.metadata["env"]] = value


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options of a server that say which tools it offers. They come before the variables of the same names."""
    group = parser.add_argument_group("tools", "by default a short list; aisp_call_tool reaches the others")
    for name, words in SELECTION.items():
        group.add_argument(f"--{name}", metavar="A,B", help=words)
    for name, words in SWITCHES.items():
        group.add_argument(f"--{name}", action="store_true", help=words)


def export_selection(options: argparse.Namespace) -> None:
    """Write the options into the environment, where the table of settings is read from."""
    for name in (*SELECTION, *SWITCHES):
        value = getattr(options, name.replace("-", "_"))
        if value:
            os.environ[f"AISP_{name.replace('-', '_').upper()}"] = "1" if value is True else value


def open_context(options: argparse.Namespace) -> Context:
    """The context for these options. They are exported too, so that jobs, which are other processes in other folders,
    see the same.

    Raises UsageError NO_SUCH_FOLDER.
    """
    # A tool's own parameter of this name comes before the option: None then.
    if getattr(options, "bench_root", None):
        roots = [str(_folder(text, "--bench-root")) for text in options.bench_root]
        os.environ["AISP_BENCH_ROOT"] = os.pathsep.join(roots)
    folders = [str(_folder(text, "--allow-write")) for text in getattr(options, "allow_write", None) or ()]
    if isinstance(named := getattr(options, "to", None), str):  # whoever types a destination opens it by that
        folders.append(str(Path(named).expanduser().absolute()))
    if folders:
        os.environ["AISP_ALLOW_WRITE"] = os.pathsep.join(folders)
    if getattr(options, "artifacts_dir", None):
        os.environ["AISP_HOME"] = str(Path(options.artifacts_dir).expanduser().absolute())
    export_executor(options)
    settings = Settings.from_env()
    os.environ["AISP_BENCH_ROOT"] = written(tuple(root.absolute() for root in settings.bench_roots))
    os.environ["AISP_HOME"] = str(settings.home.absolute())
    return Context(settings=Settings.from_env())


def _folder(text: str, option: str) -> Path:
    folder = Path(text).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError("NO_SUCH_FOLDER", f"{option}: {folder} is not a folder.", "Name a folder that exists.")
    return folder
