"""Spellings of target names: all, ch1 for ch01, and files or dotted modules instead of names."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.suites import discovery
from aisp_mcp.suites.records import Target, Variant

_SHORT = re.compile(r"ch(\d)(?=$|[:./])")
_FILE = re.compile(r"(?P<chapter>.+)[./](?P<kind>baseline|optimized)_(?P<rest>\w+?)(?:\.(?P<language>py|cpp|cu))?")


@dataclass(frozen=True)
class Wanted:
    """A name as the suites know it. file: only the candidate file of this name, None for all that the name selects."""

    name: str
    file: str | None = None


def read(names: list[str]) -> list[Wanted]:
    """`ch07.optimized_x` and `ch07/optimized_x.py` select that one file; names stay as they are.

    Naming the baseline's file in addition to a candidate adds nothing: the pair contains it already.
    """
    parsed = [(text, _FILE.fullmatch(text.strip())) for text in names]
    stems = [(match["chapter"], match["rest"]) for _, match in parsed if match and match["kind"] == "optimized"]
    patterns = []
    for text, match in parsed:
        if match is None:
            patterns.append(Wanted(text))
            continue
        chapter, rest = match["chapter"].replace(".", "/"), match["rest"]
        if match["kind"] == "optimized":
            language = match["language"] or "py"
            name = rest if language == "py" else f"{rest}_{language}"
            patterns.append(Wanted(f"{chapter}:{name}", f"optimized_{rest}.{language}"))
        elif not any(where == match["chapter"] and stem.startswith(rest) for where, stem in stems):
            patterns.append(Wanted(f"{chapter}:{rest}"))
    return patterns


def resolve(roots: discovery.Roots, name: str) -> list[tuple[Target, list[Variant]]]:
    """Targets that a name selects, in another spelling if this one has none. Raises as discovery.resolve."""
    try:
        return discovery.resolve(roots, [name])
    except NotFound:
        other = spelled(name)
        if other == name:
            raise
    return discovery.resolve(roots, [other])


def exists(roots: discovery.Roots, name: str) -> bool:
    """Return True if the name selects a target."""
    try:
        return bool(resolve(roots, name))
    except NotFound:
        return False


def in_chapter(targets: list[Target], chapter: str) -> list[Target]:
    """Targets of one chapter. Raises NotFound UNKNOWN_CHAPTER with a did-you-mean."""
    for name in (chapter.strip("/"), spelled(chapter.strip("/"))):
        if in_that_chapter := [target for target in targets if target.chapter == name]:
            return in_that_chapter
    near = difflib.get_close_matches(chapter, sorted({target.chapter for target in targets}), n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else "List the chapters."
    raise NotFound("UNKNOWN_CHAPTER", f"No chapter is named '{chapter[:80]}'.", hint, [("aisp_list_chapters", {})])


def one(roots: discovery.Roots, name: str) -> Target:
    """The only target that a name selects. Raises UsageError ONE_TARGET, BenchmarkError UNREADABLE, and as resolve."""
    targets = [target for target, _ in resolve(roots, name)]
    if len(targets) > 1:
        some = ", ".join(target.name for target in targets[:8]) + (", …" if len(targets) > 8 else "")
        raise UsageError("ONE_TARGET", f"{name[:80]!r} selects {len(targets)} targets: {some}.", "Name one of them.")
    if targets[0].problem:
        raise BenchmarkError("UNREADABLE", f"{targets[0].name}: {targets[0].problem}")
    return targets[0]


def spelled(name: str) -> str:
    """The name with its chapter in two digits; all selects every target."""
    text = name.strip()
    return "*" if text == "all" else _SHORT.sub(lambda match: f"ch0{match[1]}", text, count=1)
