"""Commits of a git repository as folders, exported without touching the repository."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aisp_mcp.errors import NotFound, Unavailable, UsageError
from aisp_mcp.process.run import run

GIT_S = 120.0
WORKING_TREE = "working tree"


@dataclass(frozen=True)
class Checkout:
    """One state of the repository: its commit (or the working tree) and the folder with its files.

    names: what benchmarks are called, by the names that their files give them, if these differ.
    """

    commit: str
    folder: Path
    names: Mapping[str, str] = field(default_factory=dict)


def repository(start: Path) -> Path:
    """The top folder of the repository around `start`. Raises NotFound NO_REPOSITORY, Unavailable NOT_INSTALLED."""
    done = git(start, "rev-parse", "--show-toplevel")
    if done is None:
        raise NotFound("NO_REPOSITORY", f"{start.absolute()} is in no git repository.", "Give repo, the folder of one.")
    return Path(done.strip())


def repository_or_bare(start: Path) -> Path:
    """The same; also a repository without a work tree, which has commits all the same."""
    bare = git(start, "rev-parse", "--is-bare-repository", "--absolute-git-dir") or ""
    is_bare, _, folder = bare.strip().partition("\n")
    return Path(folder) if is_bare == "true" else repository(start)


def commit_of(repo: Path, revision: str) -> str:
    """The full id of a commit. Raises NotFound NO_SUCH_REVISION."""
    commit = git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        if git(repo, "rev-parse", "--verify", "--quiet", "HEAD") is None:
            raise NotFound("NO_SUCH_REVISION", f"{repo} has no commit yet.", "Commit the state to compare with first.")
        hint = "A shallow clone lacks older commits: fetch with full depth."
        raise NotFound("NO_SUCH_REVISION", f"No commit is named {revision[:100]!r} in {repo}.", hint)
    return commit.strip()


def export(repo: Path, revision: str, folder: Path) -> Checkout:
    """The files of a commit, in the folder, without submodules, links that leave it and files outside git.

    Raises NotFound NO_SUCH_REVISION, UsageError NOT_EXPORTED.
    """
    commit = commit_of(repo, revision)
    folder.mkdir(parents=True)
    # Not git archive: the commit's own .gitattributes would tell it which files to leave out or to change.
    index = {"GIT_INDEX_FILE": str(folder.with_suffix(".index"))}
    words = (f"--work-tree={folder.absolute()}", "checkout-index", "--all")
    if git(repo, "read-tree", commit, env=index) is None or git(repo, *words, env=index) is None:
        raise UsageError("NOT_EXPORTED", f"git could not export {commit}.", "Does the disk have free space?")
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            path.unlink()
    return Checkout(commit, folder)


def working_tree(repo: Path, folder: Path) -> Checkout:
    """Copy of the tracked files, and of new files that git does not ignore, as they are now, without links that leave
    the repository.
    """
    for name in tracked(repo):
        source, target = repo / name, folder / name
        stays = source.is_symlink() and source.resolve().is_relative_to(repo.resolve())
        if (stays and not os.readlink(source).startswith("/")) or (source.is_file() and not source.is_symlink()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return Checkout(WORKING_TREE, folder)


def tracked(repo: Path) -> list[str]:
    """Paths of the tracked files, and of new files that git does not ignore."""
    listed = git(repo, "ls-files", "-z", "--cached", "--others", "--exclude-standard") or ""
    return [name for name in listed.split("\0") if name]


def measured_commit(files: Sequence[Path]) -> dict[str, str | float | bool] | None:
    """The commit that is checked out around these files: its id, its time `at` (UTC seconds), and `modified`.

    modified: a file differs from the commit. None if they are in no repository, or in several. Programs that a
    repository configures git to run (monitors, filters, signature checks) are not run: files are hashed here.
    """
    real = [file.resolve() for file in files]
    if not real or shutil.which("git") is None:
        return None
    top = git(real[0].parent, "rev-parse", "--show-toplevel")
    head = git(real[0].parent, "rev-list", "-1", "--timestamp", "HEAD", "--")
    if top is None or not head or not all(file.is_relative_to(top.strip()) for file in real):
        return None
    repo = Path(top.strip())
    at, commit = head.split()
    names = [file.relative_to(repo).as_posix() for file in real]
    listed = git(repo, "ls-tree", "-z", commit, "--", *names) or ""
    hashes = {
        name: about.split()[2] for about, _, name in (line.partition("\t") for line in listed.split("\0")) if name
    }
    modified = any(hashes.get(name) != _blob(file, len(commit)) for name, file in zip(names, real, strict=True))
    return {"id": commit, "at": float(at), "modified": modified}


def _blob(file: Path, digits: int) -> str:
    """The id that git gives to these contents: SHA-1, or SHA-256 in repositories whose ids have 64 digits."""
    data = file.read_bytes()
    return hashlib.new("sha1" if digits == 40 else "sha256", b"blob %d\0" % len(data) + data).hexdigest()


def git(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str | None:
    """Standard output, or None if git failed. env: additional variables. Raises Unavailable NOT_INSTALLED."""
    if shutil.which("git") is None:
        raise Unavailable("NOT_INSTALLED", "git is not installed.", "apt-get install git")
    done = run(
        ["git", "-C", str(folder), *words], env={**os.environ, **(env or {})}, timeout_s=GIT_S, max_output=50_000_000
    )
    return done.stdout if done.ok else None
