"""The shipped skills: folders of Markdown that tell an agent how to use this server's tools for one kind of task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

MAIN = "SKILL.md"
_FENCE = "---\n"


@dataclass(frozen=True)
class SkillFile:
    """One file. path: from the skill's folder, with slashes."""

    path: str
    data: bytes

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Skill:
    """One skill; its first file is SKILL.md. frontmatter: everything its author wrote there."""

    name: str
    frontmatter: dict[str, Any]
    files: tuple[SkillFile, ...]


@cache
def skills() -> tuple[Skill, ...]:
    """All shipped skills by name. They are part of the package, so they never change during a run."""
    root = files("aisp_mcp.assist.skills") / "skills"
    return tuple(_skill(folder) for folder in sorted(root.iterdir(), key=lambda item: item.name) if folder.is_dir())


def _skill(folder: Traversable) -> Skill:
    files = sorted(_walk(folder, ""), key=lambda file: (file.path != MAIN, file.path))
    return Skill(folder.name, frontmatter(files[0].data.decode()), tuple(files))


def _walk(folder: Traversable, above: str) -> Iterator[SkillFile]:
    for item in folder.iterdir():
        path = above + item.name
        if item.is_dir():
            yield from _walk(item, path + "/")
        else:
            yield SkillFile(path, item.read_bytes())


def frontmatter(text: str) -> dict[str, Any]:
    """The YAML block at the top of a SKILL.md."""
    import yaml

    head, fence, rest = text.partition(_FENCE)
    block, end, _ = rest.partition("\n" + _FENCE)
    if head or not fence or not end:
        raise ValueError("SKILL.md must begin with a block between lines of ---")
    loaded: dict[str, Any] = yaml.safe_load(block)
    return loaded
