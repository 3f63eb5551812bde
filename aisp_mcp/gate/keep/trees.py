"""The two states of a repository that a step compares, as folders, and what `--commit` does with them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.errors import NotFound, Refused, UsageError
from aisp_mcp.runs import commits
from aisp_mcp.runs.commits import git

STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Place:
    """The place of a loop. folder: the user's working folder. repo: the repository around it; None without one."""

    folder: Path
    repo: Path | None

    @property
    def top(self) -> Path:
        """The folder that is compared."""
        return self.repo or self.folder

    @property
    def below(self) -> Path:
        """The working folder as seen from the top."""
        return self.folder.relative_to(self.top)


def place(folder: Path) -> Place:
    """The repository around a folder, or the folder alone."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise NotFound("NO_SUCH_FILE", f"There is no folder {folder}.", None)
    try:
        return Place(folder, commits.repository(folder).resolve())
    except NotFound:
        return Place(folder, None)


def state_folder(where: Place, home: Path) -> Path:
    """The folder for the state of loops: in the repository's git directory, or without one aisp's own."""
    if where.repo is None:
        return home.absolute() / "keep"
    return where.repo / (git(where.repo, "rev-parse", "--git-common-dir") or ".git").strip() / "aisp-keep"


def reference(loop: str, number: int) -> str:
    """The name under which git keeps the candidate of a step."""
    return f"refs/aisp-keep/{loop}/{number}"


def export_candidate(where: Place, target: Path) -> None:
    """Copy the working tree, without files that git ignores; without a repository, the whole folder."""
    if where.repo is None:
        shutil.copytree(where.folder, target, symlinks=True)
    else:
        target.mkdir(parents=True)
        commits.working_tree(where.repo, target)


def export_incumbent(where: Place, against: str | None, loop: str, target: Path) -> str:
    """Write the incumbent into a new folder, and return what to call it. Raises NotFound, UsageError."""
    if against and Path(against).expanduser().is_dir():
        other = place(Path(against).expanduser())
        if other.repo is not None and other.repo == other.folder:
            export_candidate(other, target)
        else:
            shutil.copytree(other.folder, target, symlinks=True)
        return against
    if where.repo is None:
        message = f"{where.folder} is in no git repository, so it has no last commit to compare with."
        raise NotFound("NO_REPOSITORY", message, "Name a folder with the incumbent: --against FOLDER")
    revision = against or "HEAD"
    if step := STEP.fullmatch(revision):
        revision = reference(loop, int(step[1]))
    checkout = commits.export(where.repo, revision, target)
    return step[0] if step else checkout.commit[:12]


def share(where: Place, paths: list[str], targets: list[Path]) -> None:
    """Link files of the working folder that git ignores into both copies. Raises NotFound NO_SUCH_FILE."""
    for path in paths:
        source = where.folder / path
        if not source.exists():
            raise NotFound("NO_SUCH_FILE", f"There is no file {source}.", None)
        for target in targets:
            link = target / where.below / path
            if link.exists() or not link.resolve().is_relative_to(target.resolve()):
                message = f"{path} is one of the compared files, so both sides have their own."
                raise UsageError("NOT_SHARED", message, "Share files that git ignores, such as data or .venv.")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source.resolve())


def identity(folder: Path) -> str:
    """A hash of all files below the folder: their paths, contents, and whether they may be executed."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        content = os.readlink(path).encode() if stat.S_ISLNK(mode) else path.read_bytes()
        kind = f"{stat.S_IFMT(mode)} {bool(mode & stat.S_IXUSR)} {len(content)}"
        whole.update(f"{path.relative_to(folder)}\0{kind}\0".encode() + content)
    return whole.hexdigest()


def changed(fixed: list[str], incumbent: Path, candidate: Path) -> str | None:
    """Words for the first of the paths whose files differ, or are imported no more. Raises NotFound NO_SUCH_FILE."""
    for path in fixed:
        if not (incumbent / path).exists():
            raise NotFound("NO_SUCH_FILE", f"The incumbent has no file {path}.", None)
        if _content(incumbent / path) != _content(candidate / path):
            return f"{path}, which is fixed"
        if path.endswith(".py") and (found := _preferred(candidate, path) - _preferred(incumbent, path)):
            return f"{path}, which is fixed: Python imports {min(found)} in its place"
    return None


def _preferred(folder: Path, module: str) -> set[str]:
    """Files that Python imports in place of a module: a package or an extension of its name."""
    name = module.removesuffix(".py")
    found = [path for pattern in ("/__init__.*", ".so", ".*.so") for path in folder.glob(name + pattern)]
    return {str(path.relative_to(folder)) for path in found}


def _content(path: Path) -> str:
    if path.is_dir():
        return identity(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def refuse_no_commits(where: Place, against: str | None) -> None:
    """Raise UsageError unless the incumbent is the last commit of a repository that can be committed to."""
    if where.repo is None or against not in (None, "HEAD"):
        hint = "Leave out --against, or --commit."
        raise UsageError("NOT_COMMITTED", "--commit needs the last commit as the incumbent.", hint)
    if git(where.repo, "var", "GIT_COMMITTER_IDENT") is None:
        raise UsageError("NOT_COMMITTED", "git has no name to commit under.", "git config user.email you@example.com")


def save(repo: Path, loop: str, number: int, index: Path) -> str | None:
    """Store the working tree as a commit that no branch has, and return its name; None if git cannot."""
    env = {"GIT_INDEX_FILE": str(index)}
    who = {name: "aisp" for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME")}
    who |= {name: "aisp@localhost" for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")}
    if git(repo, "read-tree", "HEAD", env=env) is None or git(repo, "add", "--all", env=env) is None:
        return None
    tree = (git(repo, "write-tree", env=env) or "").strip()
    message = f"Candidate {number} of the loop {loop}"
    commit = (git(repo, "commit-tree", tree, "-p", "HEAD", "-m", message, env=who) or "").strip()
    name = reference(loop, number)
    return name if commit and git(repo, "update-ref", name, commit) is not None else None


def commit(repo: Path, message: str) -> str:
    """Commit the working tree, and return the commit's id. Raises Refused NOT_COMMITTED."""
    if git(repo, "add", "--all") is None or git(repo, "commit", "--quiet", "--message", message) is None:
        raise Refused("NOT_COMMITTED", "The candidate is better, and git refused to commit it.", "See `git commit`.")
    return commits.commit_of(repo, "HEAD")[:12]


def restore(repo: Path) -> None:
    """Set tracked files back to the last commit, and remove new files that git does not ignore."""
    if git(repo, "reset", "--hard", "--quiet", "HEAD") is None or git(repo, "clean", "-fdq") is None:
        raise Refused("NOT_REVERTED", "The candidate is discarded, and git could not revert it.", "See `git status`.")
