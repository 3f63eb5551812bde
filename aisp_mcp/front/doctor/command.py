"""The command `aisp doctor`: check everything, or configure one client."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.errors import UsageError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.doctor import configs
from aisp_mcp.front.doctor.clients import NAME, Client, ConfigFile, clients, entry
from aisp_mcp.front.doctor.probe import Probe, probe


@dataclass(frozen=True)
class Finding:
    """State of a client's file. state: ok, missing, broken or unreadable. message: a sentence."""

    client: str
    path: Path
    state: str
    message: str


def run(argv: Sequence[str]) -> int:
    """Return 0 if the server starts and no configured entry is broken. Raises AispError."""
    options = _parser().parse_args(argv)
    if options.client:
        return _configure(_client(options.client), options.dry_run)
    probed = probe(entry())
    findings = [finding for client in clients() for finding in check(client, probed)]
    (_print_json if options.json else _print_text)(probed, findings)
    return 0 if probed.ok and all(finding.state in ("ok", "missing") for finding in findings) else 1


def check(client: Client, probed: Probe) -> list[Finding]:
    """Check every file with our entry; if there is none, report the file to write as missing. probed: our server."""
    findings = []
    for file in client.files:
        try:
            existing = configs.find(file)
        except UsageError as error:
            findings.append(Finding(client.name, file.path, "unreadable", error.message.removeprefix(f"{file.path}: ")))
            continue
        if existing is not None:
            result = probed if existing == entry() else _probe_existing(file, existing)
            findings.append(Finding(client.name, file.path, "ok" if result.ok else "broken", result.message))
    missing = Finding(client.name, client.files[0].path, "missing", f"aisp doctor --client {client.name}")
    return list(dict.fromkeys(findings)) or [missing]


def _probe_existing(file: ConfigFile, existing: dict[str, Any]) -> Probe:
    """Probe an entry, but not one from the current folder, which may be untrusted."""
    return probe(existing) if file.own else Probe(True, "a different command, not tried")


def _configure(client: Client, dry_run: bool) -> int:
    file = client.files[0]
    change = configs.plan(file, entry())
    if not change.needed:
        print(f"{change.path} is up to date.")
        return 0
    print(terminal_text.escape(change.difference()))
    if dry_run:
        print("\nNothing was written.")
        return 0
    try:
        backup = configs.apply(change)
    except OSError as error:
        raise UsageError("CANNOT_WRITE", f"{change.path} cannot be written: {error.strerror}.") from None
    print(f"\nWrote {change.path}" + (f"; the old content is in {backup}" if backup else ""))
    result = probe(entry())
    print(f"Checked: {result.message}. Restart {client.title} to load it.")
    return 0 if result.ok else 1


def _client(name: str) -> Client:
    known = {client.name: client for client in clients()}
    if name not in known:
        raise UsageError("UNKNOWN_CLIENT", f"Unknown client {name[:40]!r}.", f"Known: {', '.join(known)}.")
    return known[name]


def _print_text(probed: Probe, findings: Sequence[Finding]) -> None:
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


def _print_json(probed: Probe, findings: Sequence[Finding]) -> None:
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
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def _names() -> str:
    return ", ".join(client.name for client in clients())
