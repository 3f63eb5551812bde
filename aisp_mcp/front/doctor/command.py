"""The command `aisp doctor`: start a server as a client would, check every client's entry, or configure one client."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.errors import ProcessError, UsageError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.doctor.clients import (
    NAME,
    ConfigFile,
    McpClient,
    apply_change,
    clients,
    entry,
    find_entry,
    plan_change,
)
from aisp_mcp.process.run import Completed
from aisp_mcp.process.run import run as run_program


@dataclass(frozen=True)
class ConfigFinding:
    """State of a client's file. state: ok, missing, broken or unreadable. message: a sentence."""

    client: str
    path: Path
    state: str
    message: str


def run(argv: Sequence[str]) -> int:
    """Return 0 if the server starts and no configured entry is broken. Raises AispError."""
    options = _parser().parse_args(argv)
    if options.executor:
        return _executor(options)
    if options.client:
        return _configure(_client(options.client), options.dry_run)
    probed = probe(entry())
    findings = [finding for client in clients() for finding in check(client, probed)]
    (_print_json if options.json else _print_text)(probed, findings)
    return 0 if probed.ok and all(finding.state in ("ok", "missing") for finding in findings) else 1


def _executor(options: argparse.Namespace) -> int:
    """Check another machine: 0 if jobs that measure can run there, 1 if something is missing."""
    from aisp_mcp.front.doctor.hosts import examine

    findings = examine(options.executor, options.remote_python)
    if options.json:
        print(terminal_text.escape_json(json.dumps([vars(finding) for finding in findings])))
    else:
        for finding in findings:
            print(terminal_text.escape(f"{'ok' if finding.ok else 'FAILED':8}{finding.what:12}{finding.message}"))
    return 0 if all(finding.ok for finding in findings) else 1


def check(client: McpClient, probed: ServerProbe) -> list[ConfigFinding]:
    """Check every file with our entry; if there is none, report the file to write as missing. probed: our server."""
    findings = []
    for file in client.files:
        try:
            existing = find_entry(file)
        except UsageError as error:
            findings.append(
                ConfigFinding(client.name, file.path, "unreadable", error.message.removeprefix(f"{file.path}: "))
            )
            continue
        if existing is not None:
            result = probed if existing == entry() else _probe_existing(file, existing)
            findings.append(ConfigFinding(client.name, file.path, "ok" if result.ok else "broken", result.message))
    missing = ConfigFinding(client.name, client.files[0].path, "missing", f"aisp doctor --client {client.name}")
    return list(dict.fromkeys(findings)) or [missing]


def _probe_existing(file: ConfigFile, existing: dict[str, Any]) -> ServerProbe:
    """Probe an entry, but not one from the current folder, which may be untrusted."""
    return probe(existing) if file.own else ServerProbe(True, "a different command, not tried")


def _configure(client: McpClient, dry_run: bool) -> int:
    file = client.files[0]
    change = plan_change(file, entry())
    if not change.needed:
        print(f"{change.path} is up to date.")
        return 0
    print(terminal_text.escape(change.difference()))
    if dry_run:
        print("\nNothing was written.")
        return 0
    try:
        backup = apply_change(change)
    except OSError as error:
        raise UsageError("CANNOT_WRITE", f"{change.path} cannot be written: {error.strerror}.") from None
    print(f"\nWrote {change.path}" + (f"; the old content is in {backup}" if backup else ""))
    result = probe(entry())
    print(f"Checked: {result.message}. Restart {client.title} to load it.")
    return 0 if result.ok else 1


def _client(name: str) -> McpClient:
    known = {client.name: client for client in clients()}
    if name not in known:
        raise UsageError("UNKNOWN_CLIENT", f"Unknown client {name[:40]!r}.", f"Known: {', '.join(known)}.")
    return known[name]


def _print_text(probed: ServerProbe, findings: Sequence[ConfigFinding]) -> None:
    mark = "ok" if probed.ok else "FAILED"
    print(
        f"aisp-mcp {__version__}, {mark}: {probed.message}" + (f", {probed.seconds:g} s in total" if probed.ok else "")
    )
    print(f"  {' '.join([entry()['command'], *entry()['args']])}\n")
    rows = [(finding.client, finding.state, str(finding.path), finding.message) for finding in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        print(terminal_text.escape("  ".join([*padded, row[3]])))
    for key in ("mcpServers", "servers"):
        users = [client for client in clients() if client.files[0].keys == (key,)]
        print(f"\nFor {', '.join(client.title for client in users)}:")
        print(json.dumps({key: {NAME: entry()}}, indent=2))
        for client in users:
            if client.instead:
                print(f"or, for {client.title}: {client.instead}")


def _print_json(probed: ServerProbe, findings: Sequence[ConfigFinding]) -> None:
    report: dict[str, Any] = {"version": __version__, "server": vars(probed), "entry": entry()}
    report["clients"] = [{**vars(finding), "path": str(finding.path)} for finding in findings]
    print(json.dumps(report, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aisp doctor", description="Check the server and the configuration of MCP clients."
    )
    parser.add_argument(
        "--client", metavar="NAME", help="write the server's entry into this client's file: " + _names()
    )
    parser.add_argument("--dry-run", action="store_true", help="with --client: show the difference, write nothing")
    parser.add_argument("--executor", metavar="NAME", help="check what jobs are sent to: ssh://HOST, kubernetes")
    parser.add_argument(
        "--remote-python", metavar="PATH", help="with --executor: the Python there (or AISP_REMOTE_PYTHON)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def _names() -> str:
    return ", ".join(client.name for client in clients())


TIMEOUT_S = 30.0
_MESSAGES = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "aisp doctor", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)


@dataclass(frozen=True)
class ServerProbe:
    """Result of the probe. message: a sentence. seconds: from start to end. tools: number of listed tools."""

    ok: bool
    message: str
    seconds: float = 0.0
    tools: int = 0


def probe(entry: dict[str, Any]) -> ServerProbe:
    """Run the command of an entry with a temporary store, so that the user's jobs are not touched."""
    if "url" in entry:
        return ServerProbe(True, f"over HTTP at {str(entry['url'])[:200]}, not tried")
    command, args = str(entry.get("command", "")), entry.get("args") or []
    if shutil.which(command) is None:
        return ServerProbe(False, f"{command} is not an executable program" if command else "the entry has no command")
    env = {**os.environ, **{str(key): str(value) for key, value in (entry.get("env") or {}).items()}}
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in _MESSAGES)
    with tempfile.TemporaryDirectory(prefix="aisp-doctor-") as home:
        try:
            completed = run_program(
                [command, *map(str, args)], timeout_s=TIMEOUT_S, env={**env, "AISP_HOME": home}, stdin=text
            )
        except ProcessError as error:
            return ServerProbe(False, error.message)
    return _evaluate(completed)


def _evaluate(completed: Completed) -> ServerProbe:
    answers = {}
    for line in completed.stdout.splitlines():
        try:
            answer = json.loads(line)
            answers[answer.get("id")] = answer.get("result") or {}
        except (ValueError, AttributeError):
            return ServerProbe(False, f"it writes non-protocol text to standard output: {line[:80]!r}")
    if completed.timed_out:
        return ServerProbe(False, f"it did not exit within {TIMEOUT_S:g} s after the end of its input")
    if "tools" not in answers.get(2, {}):
        last = (completed.stderr.strip().splitlines() or [f"it ended with {completed.returncode}"])[-1]
        return ServerProbe(False, f"it does not answer: {last[:200]}")
    name = answers[1].get("serverInfo", {}).get("name")
    tools = len(answers[2]["tools"])
    return ServerProbe(True, f"{name} answers, {tools} tools listed", round(completed.seconds, 2), tools)
