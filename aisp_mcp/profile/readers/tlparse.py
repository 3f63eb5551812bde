"""What torch.compile did, from the folder that tlparse writes: compilations, their time, and what broke graphs."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from aisp_mcp.profile.readers.files import MAX_TEXT, ProfileFile, bad, look, read
from aisp_mcp.profile.readers.text import clean, duration
from aisp_mcp.profile.records import Source, Statement

DIRECTORY, EVENTS = "compile_directory.json", "chromium_events.json"
_COMPILES = ("dynamo", "entire_backward_compile")  # events around everything that is compiled for one id
_MOST_TEXT = 200_000
_ID = re.compile(r"\d+/\d+")
_WHERE = re.compile(r"at (\S+:\d+)\s*\n")
_REASON = re.compile(r"Graph Break Reason: (.*)")


class Compilation(NamedTuple):
    """id: frame and compilation of it, such as 0/1. seconds: None if the events do not have it."""

    id: str
    code: str
    seconds: float | None
    recompiled: str
    graph_break: str


def is_output(folder: Path) -> bool:
    """Return True for a folder that tlparse wrote."""
    return (folder / DIRECTORY).is_file()


def compilations(folder: Path) -> tuple[Source, list[Compilation]]:
    """All compilations in the order of the folder. Raises UsageError BAD_PROFILE."""
    file = look(folder / DIRECTORY)
    artifacts = _json(file)
    if not isinstance(artifacts, dict):
        raise bad(f"{DIRECTORY} does not list compilations by id.")
    spent, codes = _events(folder)
    rows = []
    for key, entry in artifacts.items():
        name = clean(key.strip("[]"), 40)
        if not _ID.match(name) or not isinstance(entry, dict):
            continue  # [-/-] holds what belongs to no compilation
        text = {kind: _text(folder, entry, kind) for kind in ("recompile_reasons", "dynamo_graph_break_reason")}
        rows.append(
            Compilation(
                name,
                codes.get(name, ""),
                spent.get(name),
                text["recompile_reasons"].partition(": ")[2] or text["recompile_reasons"],
                _broken(text["dynamo_graph_break_reason"]),
            )
        )
    return file.source("tlparse", "tlparse", None).model_copy(update={"path": str(folder)}), rows


def _json(file: ProfileFile) -> Any:
    try:
        return json.loads(read(file, MAX_TEXT))
    except ValueError as error:
        raise bad(f"{file.path.name!r} is not JSON: {clean(error, 100)}.", "Run tlparse again.") from error


def _events(folder: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds and code by compilation."""
    if not (folder / EVENTS).is_file():
        return {}, {}
    begun: dict[tuple[Any, Any, str, str], float] = {}
    spent: Counter[str] = Counter()
    codes: dict[str, str] = {}
    for event in _json(look(folder / EVENTS)):
        args = event.get("args") if isinstance(event, dict) else None
        if (
            not isinstance(args, dict)
            or event.get("name") not in _COMPILES
            or not isinstance(event.get("ts"), float | int)
        ):
            continue
        name = clean(args.get("compile_id") or "", 40)
        key = (event.get("pid"), event.get("tid"), event["name"], name)
        if event.get("ph") == "B":
            begun[key] = event["ts"]
        elif event.get("ph") == "E" and key in begun:
            spent[name] += (event["ts"] - begun.pop(key)) / 1e6
            if args.get("co_name"):
                place = f"{Path(str(args.get('co_filename'))).name}:{args.get('co_firstlineno')}"
                codes[name] = clean(f"{args['co_name']} ({place})", 200)
    return dict(spent), codes


def _text(folder: Path, entry: dict[str, Any], kind: str) -> str:
    """The first artifact of this kind, if it is a small file of the folder."""
    for artifact in entry.get("artifacts") or []:
        if isinstance(artifact, dict) and str(artifact.get("name", "")).startswith(kind):
            path = (folder / str(artifact.get("url"))).resolve()
            if path.is_relative_to(folder.resolve()) and path.is_file():
                with path.open(encoding="utf-8", errors="replace") as file:
                    return file.read(_MOST_TEXT).strip()
    return ""


def _broken(text: str) -> str:
    """The reason of a graph break and its place."""
    reason, where = _REASON.search(text), _WHERE.search(text)
    named = reason[1].strip() if reason else text.partition("\n")[0]
    return clean(f"{named} at {where[1]}" if where else named, 300)


def opening(rows: list[Compilation]) -> list[Statement]:
    """The compilations, then what was compiled again, then what broke graphs."""
    if not rows:
        return [Statement(text="The folder lists no compilation.", rows=[])]
    frames = len({row.id.partition("/")[0] for row in rows})
    timed = [(row.seconds, at) for at, row in enumerate(rows) if row.seconds is not None]
    text = f"torch.compile compiled {_count(frames, 'frame')} in {_count(len(rows), 'compilation')}"
    where = []
    if timed:
        longest, at = max(timed)
        whole = sum(seconds for seconds, _ in timed)
        text += f", which took {duration(whole * 1e9)}; the longest took {duration(longest * 1e9)}"
        text += f": {rows[at].code or rows[at].id}"
        where = [f"frames[{at}].seconds"]
    statements = [Statement(text=f"{text}.", rows=where)]
    for field, said in (("recompiled", "compiled a frame again"), ("graph_break", "broke the graph")):
        found = [(getattr(row, field), at) for at, row in enumerate(rows) if getattr(row, field)]
        if found:
            most, many = Counter(reason for reason, _ in found).most_common(1)[0]
            lead = f"most often ({many:,} times)" if many > 1 else "such as"
            text = f"{len(found):,} of them {said}; {lead}: {clean(most, 240)}."
            statements.append(Statement(text=text, rows=[f"frames[{at}].{field}" for _, at in found[:8]]))
    return statements


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
