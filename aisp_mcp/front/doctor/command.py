"""The command: look at everything, or write one client's file."""

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
from aisp_mcp.front.doctor.clients import NAME, Client, Place, clients, entry
from aisp_mcp.front.doctor.probe import Probe, probe


@dataclass(frozen=True)
class Finding:
    """State of one client file. state: ok, missing, broken or unreadable."""

    client: str
    path: Path
    state: str
    said: str


def run(words: Sequence[str]) -> int:
    """0 when the server starts and nothing that is configured is broken. Raises AispError."""
    options = _parser().parse_args(words)
    if options.client:
        return _write(_client(options.client), options.dry_run)
    ours = probe(entry())
    findings = [finding for client in clients() for finding in look(client, ours)]
    (_print_json if options.json else _print_text)(ours, findings)
    return 0 if ours.ok and all(finding.state in ("ok", "missing") for finding in findings) else 1


def look(client: Client, ours: Probe) -> list[Finding]:
    """Every file in which we are, or the one where we could be."""
    found = []
    for place in client.places:
        try:
            there = configs.find(place)
        except UsageError as error:
            found.append(Finding(client.name, place.path, "unreadable", error.message.removeprefix(f"{place.path}: ")))
            continue
        if there is not None:
            seen = ours if there == entry() else _try(place, there)
            found.append(Finding(client.name, place.path, "ok" if seen.ok else "broken", seen.said))
    missing = Finding(client.name, client.places[0].path, "missing", f"aisp doctor --client {client.name}")
    return list(dict.fromkeys(found)) or [missing]


def _try(place: Place, there: dict[str, Any]) -> Probe:
    """A file of the folder one happens to be in may be anybody's: what it names is not run."""
    return probe(there) if place.own else Probe(True, "another command than this one, not tried")


def _write(client: Client, dry_run: bool) -> int:
    place = client.places[0]
    change = configs.plan(place, entry())
    if not change.needed:
        print(f"{change.path} is up to date.")
        return 0
    print(terminal_text.escape(change.difference()))
    if dry_run:
        print("\nNothing was written.")
        return 0
    try:
        copy = configs.apply(change)
    except OSError as error:
        raise UsageError("CANNOT_WRITE", f"{change.path} cannot be written: {error.strerror}.") from None
    print(f"\nWrote {change.path}" + (f"; what was there is {copy}" if copy else ""))
    seen = probe(entry())
    print(f"Checked: {seen.said}. Restart {client.title} to load it.")
    return 0 if seen.ok else 1


def _client(name: str) -> Client:
    known = {client.name: client for client in clients()}
    if name not in known:
        raise UsageError("UNKNOWN_CLIENT", f"No client is named {name[:40]!r}.", f"Known: {', '.join(known)}.")
    return known[name]


def _print_text(ours: Probe, findings: Sequence[Finding]) -> None:
    mark = "ok" if ours.ok else "FAILED"
    print(f"aisp-mcp {__version__}, {mark}: {ours.said}" + (f", {ours.seconds:g} s in all" if ours.ok else ""))
    print(f"  {' '.join([entry()['command'], *entry()['args']])}\n")
    rows = [(finding.client, finding.state, str(finding.path), finding.said) for finding in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            terminal_text.escape(
                "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
            )
        )
    for key in ("mcpServers", "servers"):
        users = [client for client in clients() if client.places[0].keys == (key,)]
        print(f"\nFor {', '.join(client.title for client in users)}:")
        print(json.dumps({key: {NAME: entry()}}, indent=2))
        for client in users:
            if client.instead:
                print(f"or, for {client.title}: {client.instead}")


def _print_json(ours: Probe, findings: Sequence[Finding]) -> None:
    said: dict[str, Any] = {"version": __version__, "server": vars(ours), "entry": entry()}
    said["clients"] = [{**vars(finding), "path": str(finding.path)} for finding in findings]
    print(json.dumps(said, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aisp doctor", description="Check the server and how clients find it.")
    parser.add_argument("--client", metavar="NAME", help="write our entry into this client's file: " + _names())
    parser.add_argument("--dry-run", action="store_true", help="with --client: show the difference, write nothing")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    return parser


def _names() -> str:
    return ", ".join(client.name for client in clients())
