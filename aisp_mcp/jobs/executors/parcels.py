"""The files that a job needs on another machine: which folders, their content by hash, and paths as they are there.

A folder goes as a whole, since a file imports its neighbours. Only what an argument names is sent, the suites, and the
package itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import aisp_mcp
from aisp_mcp.errors import UsageError
from aisp_mcp.jobs.executors.receiving import hash_of
from aisp_mcp.system.command import ask

MAX_FILES, MAX_BYTES = 20_000, 512_000_000
_GIT_S, _FETCH_S = 20.0, 300.0
_SKIPPED = ("__pycache__", "node_modules")
# Folders of a system: programs and devices that another machine has itself.
_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/dev", "/proc", "/sys", "/etc", "/run")))
_WORDS = re.compile(r"[\s:=,;\"']+")


@dataclass
class Parcel:
    """One folder. known: hashes of files by path, time and size, kept between parcels. all: hidden files, too."""

    root: Path
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)
    all: bool = False

    @cached_property
    def files(self) -> list[tuple[str, int, str]]:
        """Name below the root, mode and hash of each file. Raises UsageError NOT_SENT, OSError."""
        found = []
        for name, about in self._present():
            key = (str(self.root / name), about.st_mtime_ns, about.st_size)
            digest = self.known.get(key) or hash_of(key[0])
            if digest is not None:
                self.known[key] = digest
                found.append((name, 0o700 if about.st_mode & 0o100 else 0o600, digest))
        return found

    def _present(self) -> list[tuple[str, os.stat_result]]:
        """The regular files, before any of them is read. Raises UsageError NOT_SENT."""
        found, size = [], 0
        for name in sorted(_everything(self.root) if self.all else _names(self.root)):
            with contextlib.suppress(OSError):  # a link that leads nowhere, or a file that is gone
                about = (self.root / name).stat()
                if stat.S_ISREG(about.st_mode):
                    found.append((name, about))
                    size += about.st_size
            if len(found) > MAX_FILES or size > MAX_BYTES:
                raise UsageError(
                    "NOT_SENT",
                    f"{self.root} has more than {MAX_FILES} files or {MAX_BYTES // 10**6} MB to send.",
                    "Put what the job needs into a folder of its own; in a git repository, ignored files stay here.",
                )
        return found

    def summary(self) -> dict[str, Any]:
        """What would be sent, before any file is read. Raises UsageError NOT_SENT."""
        present = self._present()
        size = sum(about.st_size for _, about in present)
        return {"folder": str(self.root), "files": len(present), "mb": round(size / 1e6, 3)}

    @cached_property
    def digest(self) -> str:
        """Hash of names, modes and contents."""
        return hashlib.sha256(json.dumps([self.root.name, self.files]).encode()).hexdigest()

    def sizes(self, digests: Iterable[str]) -> list[tuple[str, int, Path]]:
        """Hash, size and path of one file for each of these hashes."""
        by_digest = {digest: self.root / name for name, _, digest in self.files}
        return [(digest, by_digest[digest].stat().st_size, by_digest[digest]) for digest in digests]


def package() -> Path:
    """The folder of this package."""
    return Path(aisp_mcp.__file__).parent


def roots(params: Mapping[str, Any], cwd: str, env: Mapping[str, str]) -> list[Path]:
    """The folders to send for a job, none below another: those of its arguments, of suites and of the user's tools."""
    found = {folder for text in _texts(params) for folder in _folders_of(text, Path(cwd))}
    shipped = package()
    for text in env.get("AISP_BENCH_ROOT", "").split(os.pathsep):
        if text and Path(text).is_dir():
            found.add(Path(text).resolve())
    modules = [name for name in env.get("AISP_TOOL_MODULES", "").split(",") if name.strip()]
    for entry in filter(None, env.get("PYTHONPATH", "").split(os.pathsep)):
        if any((Path(entry) / name.strip().partition(".")[0]).with_suffix(".py").is_file() for name in modules):
            found.add(Path(entry).resolve())
    outer = [root for root in found if not any(other in root.parents for other in found)]
    return sorted(root for root in outer if root != shipped and shipped not in root.parents)


def repository(repo: Path, commits: Iterable[str], folder: Path) -> Path:
    """A copy of a repository below a folder: its files as they are now, and of its history these commits only.

    Raises UsageError NOT_SENT.
    """
    copy = folder / repo.name
    wanted = sorted(set(commits))
    # Else git serves only the tips of branches.
    served = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant",
        "GIT_CONFIG_VALUE_0": "true",
    }
    steps = (
        ["git", "init", "--quiet", str(copy)],
        ["git", "-C", str(copy), "fetch", "--quiet", "--depth=1", "--no-tags", f"file://{repo}", *wanted],
        *(["git", "-C", str(copy), "update-ref", f"refs/heads/{commit}", commit] for commit in wanted),
    )
    for words in steps:
        done = ask(words, _FETCH_S, {**os.environ, **served})
        if done.code != 0:
            said = (done.err.strip().splitlines() or ["git failed"])[-1]
            raise UsageError("NOT_SENT", f"The history of {repo} cannot be copied: {said[:200]}.", "git fsck")
    for name, _ in Parcel(repo)._present():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repo / name, target)
    return copy


def whole(params: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """The arguments with absolute paths where a relative one leads out of the working folder."""

    def change(text: str) -> str:
        path, colon, rest = text.partition(":")
        resolved = os.path.normpath(os.path.join(cwd, path))
        return f"{resolved}{colon}{rest}" if path.startswith("..") and os.path.exists(resolved) else text

    changed: dict[str, Any] = _each(dict(params), change)
    return changed


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Texts in which one path, and every path below it, is replaced by another. names: the other one of each."""
    if not names:
        return value
    longest = sorted(names, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])")
    return _each(value, lambda text: pattern.sub(lambda match: names[match[1]], text))


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_each(item, change) for item in value]
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _folders_of(text: str, cwd: Path) -> Iterator[Path]:
    """Folders that an argument names: the working folder for a path below it, else the path's own."""
    cwd = cwd.resolve()
    for word in {text, *_WORDS.split(text)}:
        if not word or len(word) > 4096 or "\0" in word:
            continue
        path = Path(os.path.normpath(cwd / word))
        try:
            if not path.exists():
                continue
        except OSError:
            continue
        if word.startswith(("/", "..")) and (_of_the_system(path) or path == Path("/")):
            continue
        if (path == cwd or cwd in path.parents) and cwd not in _too_wide():
            yield cwd
            continue
        folder = path if path.is_dir() else path.parent
        if folder not in _too_wide():
            yield folder
        elif path.is_file():
            message = f"{path} lies in {folder} itself, which is not sent to another machine."
            raise UsageError("NOT_SENT", message, "Put what the job needs into a folder of its own.")


def _too_wide() -> set[Path]:
    """Folders with much that no job needs, and with secrets."""
    return {Path("/"), Path("/tmp"), Path.home()}


def _of_the_system(path: Path) -> bool:
    return any(folder == path or folder in path.parents for folder in (*_SYSTEM, Path(sys.prefix)))


def _names(root: Path) -> Iterable[str]:
    """Names of files below a folder: in a repository, those that git does not ignore; else without hidden folders."""
    listed = ask(["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], _GIT_S)
    return set(filter(None, listed.out.split("\0"))) if listed.code == 0 and listed.out else _walked(root)


def _everything(root: Path) -> Iterator[str]:
    return (os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names)


def _walked(root: Path) -> Iterator[str]:
    for folder, below, files in os.walk(root):
        inside = [name for name in below if name[0] != "." and name not in _SKIPPED]
        below[:] = [name for name in inside if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in files if not name.endswith(".pyc"))
