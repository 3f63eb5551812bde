"""Modules of the working tree that a process measuring a commit has imported, as happens with an editable installation.

Such a process measures one commit and reports another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import aisp_mcp

SOURCES = ("", "src", "lib", "python")  # folders of a repository that its modules are imported from


def sources(root: Path) -> list[str]:
    """Existing folders of a checkout that its modules are imported from."""
    return [str(folder) for name in SOURCES if (folder := root / name).is_dir()]


def find(files: Iterable[str], tree: Path, checkouts: Path | None = None) -> str:
    """The first file of a loaded module inside the working tree, relative to it; empty if there is none.

    checkouts: a folder, perhaps below the tree, whose files are expected. Installed packages and this one are, too.
    """
    own = Path(aisp_mcp.__file__).parent
    for path in map(Path, files):
        expected = path.is_relative_to(own) or (checkouts is not None and path.is_relative_to(checkouts))
        if path.is_relative_to(tree) and "site-packages" not in path.parts and not expected:
            return str(path.relative_to(tree))
    return ""


def loaded() -> Iterator[str]:
    """Files of the modules that this process has loaded."""
    for module in list(sys.modules.values()):
        if isinstance(file := getattr(module, "__file__", None), str):
            yield file


def refuse(tree: Path, checkouts: Path) -> None:
    """Raises ImportError if this process has loaded a module of the working tree."""
    if file := find(loaded(), tree, checkouts):
        raise ImportError(f"{file} was imported from the working tree, not from the measured commit")
