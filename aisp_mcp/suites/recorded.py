"""Verdicts from records in `results/`, if there is such a folder next to the suites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.suites import discovery as suites

FOLDER = "results"
MAX_BYTES = 8 << 20  # a larger file is not a record of verdicts


def verdicts(roots: suites.Roots) -> dict[str, dict[str, str]]:
    """Candidate to device to the verdict of the newest record; files of other forms are skipped."""
    folders = {Path(root).resolve().parent / FOLDER for root in ([roots] if isinstance(roots, Path) else roots)}
    bodies = [body for folder in sorted(folders) for path in sorted(folder.glob("*.json")) if (body := _read(path))]
    by_target: dict[str, dict[str, str]] = {}
    for body in sorted(bodies, key=lambda body: str(body.get("date"))):
        changed = set(map(str, body.get("candidates changed afterwards", ())))
        device = str(body["device"]).partition(",")[0]
        for name, verdict in _rows(body):
            if name not in changed:
                by_target.setdefault(name, {})[device] = verdict
    return by_target


def _read(path: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(path.read_text("utf-8")) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) and "device" in body else None


def _rows(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of candidates and their verdicts, of both forms: an object by name, or a list of rows."""
    candidates, rows = body.get("candidates"), body.get("rows")
    for name, value in candidates.items() if isinstance(candidates, dict) else ():
        if isinstance(value, dict) and "verdict" in value:
            yield name, str(value["verdict"])
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and {"target", "candidate", "verdict"} <= row.keys():
            yield f"{row['target']}_{row['candidate']}".rstrip("_"), str(row["verdict"])
