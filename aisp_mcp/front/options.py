"""Command-line options that the servers and the CLI share, and the context they open."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container
from dataclasses import fields
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.server.context import DESTINATIONS, Context
from aisp_mcp.settings import ClusterSettings, Settings, written

SELECTION = {
    "toolsets": "tool families to offer: default, all, or names from --list",
    "tools": "tools to offer, by name; in addition to --toolsets if both are given",
    "exclude-tools": "tools never to offer",
}
SWITCHES = {
    "read-only": "offer only tools that read",
    "lite": "list four tools: find, call, wait and triage",
}

_SHARED = {
    "bench_root": "folder of benchmarks; may be repeated (or AISP_BENCH_ROOT)",
    "allow_write": "a folder outside AISP_HOME that tools may write to; may be repeated (or AISP_ALLOW_WRITE)",
}


def add_shared(parser: argparse.ArgumentParser, tool_arguments: Container[str] = ()) -> None:
    """Add --bench-root and --allow-write, except those that the tool itself has as arguments."""
    for name, help_text in _SHARED.items():
        if name not in tool_arguments:
            parser.add_argument(f"--{name.replace('_', '-')}", metavar="DIR", action="append", help=help_text)


def add_home(parser: argparse.ArgumentParser) -> None:
    """Add --artifacts-dir."""
    parser.add_argument("--artifacts-dir", metavar="DIR", help="folder for runs and profiles (or AISP_HOME)")


def add_executor(parser: argparse.ArgumentParser, tool_arguments: Container[str]) -> None:
    """Add --executor and the cluster's options, except those that the tool itself has as arguments."""
    group = parser.add_argument_group("executor", "what runs the job")
    for item in fields(ClusterSettings):
        if item.name not in tool_arguments:
            help_text = f"{item.metadata['help'].partition('.')[0]} (or {item.metadata['env']})"
            metavar = "N" if item.type == "int" else "TEXT"
            extra: dict[str, Any] = {"nargs": "?", "const": "1"} if item.name == "array" else {}
            group.add_argument(
                f"--{item.name.replace('_', '-')}", dest=f"_{item.name}", metavar=metavar, help=help_text, **extra
            )


def export_executor(options: argparse.Namespace) -> None:
    """Write the executor options into the environment, from which the settings are read."""
    for item in fields(ClusterSettings):
        value = getattr(options, f"_{item.name}", None)
        if value is not None:
            os.environ[item.metadata["env"]] = value


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the tools a server offers; they override the environment variables."""
    group = parser.add_argument_group("tools", "by default a short list; aisp_call_tool calls the others")
    for name, help_text in SELECTION.items():
        group.add_argument(f"--{name}", metavar="A,B", help=help_text)
    for name, help_text in SWITCHES.items():
        group.add_argument(f"--{name}", action="store_true", help=help_text)


def export_selection(options: argparse.Namespace) -> None:
    """Write the selection options into the environment, from which the settings are read."""
    for name in (*SELECTION, *SWITCHES):
        value = getattr(options, name.replace("-", "_"))
        if value:
            os.environ[f"AISP_{name.replace('-', '_').upper()}"] = "1" if value is True else value


def open_context(options: argparse.Namespace) -> Context:
    """Open the context for these options, and export them so that jobs, which are separate processes, see the same.

    Raises UsageError NO_SUCH_FOLDER.
    """
    # None where the tool has an argument of this name.
    if getattr(options, "bench_root", None):
        roots = [str(_folder(text, "--bench-root")) for text in options.bench_root]
        os.environ["AISP_BENCH_ROOT"] = os.pathsep.join(roots)
    folders = [str(_folder(text, "--allow-write")) for text in getattr(options, "allow_write", None) or ()]
    if getattr(options, "artifacts_dir", None):
        os.environ["AISP_HOME"] = str(Path(options.artifacts_dir).expanduser().absolute())
    # Typing a destination permits writing to it, unless it is a file of the store itself.
    named = [path for name in DESTINATIONS if isinstance(path := getattr(options, name, None), str)]
    typed, home = [Path(path).expanduser().absolute() for path in named], Settings.from_env().home.resolve()
    folders += [str(path) for path in typed if home not in (path.resolve(), path.resolve().parent)]
    if folders:
        os.environ["AISP_ALLOW_WRITE"] = os.pathsep.join(folders)
    export_executor(options)
    settings = Settings.from_env()
    os.environ["AISP_BENCH_ROOT"] = written(tuple(root.absolute() for root in settings.bench_roots))
    os.environ["AISP_HOME"] = str(settings.home.absolute())
    return Context(settings=Settings.from_env())


def _folder(text: str, option: str) -> Path:
    folder = Path(text).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError("NO_SUCH_FOLDER", f"{option}: {folder} is not a folder.", "Give an existing folder.")
    return folder
