"""The files of a run: copies of the inputs that its command line needs, and its outputs.

Each run begins with copies of its own input files only, and its outputs are moved away before the next run starts.
Outputs are regular files, folders, and links between them; nothing is opened through a link that leads out.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from aisp_mcp.errors import NotFound, UsageError


class BadOutput(Exception):
    """A program left files that cannot be compared safely."""


def needed(argv: Sequence[str], declared: Sequence[Path]) -> tuple[Path, ...]:
    """Paths below the working folder to copy for a command line: words of its own, and declared files."""
    here = Path.cwd()
    words = [Path(word) for word in argv if word and not word.startswith("/") and os.path.exists(word)]
    own = [path for path in words if _is_below(path, here) and not path.samefile(here)]
    for path in declared:
        if not path.exists():
            raise NotFound("NO_SUCH_FILE", f"There is no file {path}.", None)
        if not _is_below(path, here):
            message = f"{path} is not below the working folder, so it cannot be copied into the folder of a run."
            raise UsageError("FILE_OUTSIDE", message, "Call aisp from a folder that contains it.")
    relative = {Path(os.path.relpath(path, here)) for path in (*own, *declared)}
    return tuple(here / path for path in sorted(relative))


def _is_below(path: Path, folder: Path) -> bool:
    return not os.path.relpath(path, folder).startswith("..")


def copy_in(sources: Sequence[Path], root: Path, folder: Path) -> None:
    """Copy files and folders into the folder of a run, at their paths relative to root."""
    for source in sources:
        target = folder / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def take_out(folder: Path, sources: Sequence[Path], root: Path, target: Path) -> None:
    """Move the outputs of a run to target, without the inputs that it did not change. Raises BadOutput."""
    for path in _entries(folder):
        _refuse_unsafe(path, folder)
    for source in sources:
        _drop_unchanged(source, folder / source.relative_to(root))
    folder.rename(target)


def entries(folder: Path) -> dict[str, str]:
    """Kinds of the entries below the folder by relative path, in words; of links, with their destination.

    A file with several hard links is not a copy: changing one changes all.
    """
    return {str(path.relative_to(folder)): _kind(path) for path in _entries(folder)}


def _kind(path: Path) -> str:
    entry = path.lstat()
    if stat.S_ISLNK(entry.st_mode):
        return f"a link to {os.readlink(path)}"
    if stat.S_ISDIR(entry.st_mode):
        return "a folder"
    kind = "a program" if entry.st_mode & stat.S_IXUSR else "a file"
    return kind if entry.st_nlink == 1 else f"{kind} with {entry.st_nlink} hard links"


def _entries(folder: Path) -> Iterator[Path]:
    """Everything below the folder; links are not followed. Raises BadOutput for a folder that cannot be read."""

    def unreadable(error: OSError) -> None:
        raise BadOutput(f"{Path(str(error.filename)).name} cannot be read: {error.strerror}")

    for inside, folders, names in os.walk(folder, onerror=unreadable):
        yield from (Path(inside, name) for name in (*folders, *names))


def _refuse_unsafe(path: Path, folder: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = os.readlink(path)
        try:
            outside = target.startswith("/") or not path.resolve().is_relative_to(folder)
        except (OSError, RuntimeError):  # circular links
            outside = True
        if outside:
            raise BadOutput(f"{path.name} is a symbolic link out of its folder")
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadOutput(f"{path.name} is neither a file nor a folder")
    elif not os.access(path, os.R_OK):
        raise BadOutput(f"{path.name} cannot be read")


def _drop_unchanged(source: Path, copy: Path) -> None:
    """Remove the copy of an unchanged input, or of each unchanged file in a folder of inputs."""
    if source.is_dir():
        for path in source.iterdir():
            _drop_unchanged(path, copy / path.name)
        if copy.is_dir() and not copy.is_symlink() and not any(copy.iterdir()):
            copy.rmdir()
    elif copy.is_file() and not copy.is_symlink() and filecmp.cmp(source, copy, shallow=False):
        copy.unlink()
