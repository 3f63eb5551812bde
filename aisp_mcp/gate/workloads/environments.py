"""Environments: one commit of a repository, checked out and built once, in a Python environment of its own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.gate.strays import sources
from aisp_mcp.process.run import Completed, run
from aisp_mcp.runs.commits import commit_of, git

BUILD_S, TESTS_S = 3600.0, 3600.0
DEFAULT_BUILD = "pip install -e ."
OLDEST = (3, 10)  # that the processes of workloads run in
_PROJECTS = ("pyproject.toml", "setup.py")
_SUMMARIES = ("note:", "hint:", "[notice]", "error: subprocess-exited", "error: command")  # not the reason itself
_OTHERS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX")


@dataclass(frozen=True)
class Environment:
    """A commit that is built. name: what its user calls it; was_kept: it was built for an earlier call."""

    name: str
    commit: str
    folder: Path
    build: str
    was_kept: bool

    @property
    def tree(self) -> Path:
        """The commit's files."""
        return self.folder / "tree"

    @property
    def python(self) -> str:
        return str(self.folder / "venv" / "bin" / "python")

    @property
    def variables(self) -> dict[str, str]:
        """Variables of programs that run in it."""
        venv = self.folder / "venv"
        path = os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", os.defpath)])
        return {"PATH": path, "VIRTUAL_ENV": str(venv), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    @property
    def sources(self) -> list[Path]:
        """Folders of modules, for commits that no build has installed."""
        return [Path(folder) for folder in sources(self.tree)]

    def shell(self, line: str, timeout_s: float) -> Completed:
        """Run a shell line in the commit's files."""
        kept = {name: value for name, value in os.environ.items() if name not in _OTHERS}
        return run(["/bin/sh", "-c", line], cwd=self.tree, env={**kept, **self.variables}, timeout_s=timeout_s)


def build(repo: Path, name: str, command: str | None, python: str, folder: Path) -> Environment:
    """The environment of a commit, which is kept below the folder. command: a shell line; None for the usual one.

    Raises NotFound NO_SUCH_REVISION, UsageError OLD_PYTHON, BenchmarkError BUILD_FAILED.
    """
    commit = commit_of(repo, name)
    version = _version(python)
    line = _usual(repo, commit) if command is None else command
    key = hashlib.sha256("\0".join([commit, line, version, python]).encode()).hexdigest()[:16]
    home = folder / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{key}.lock").open("w") as lock:  # another job may be building the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = Environment(name, commit, home, line, was_kept=(home / "built").exists())
        if not environment.was_kept:
            shutil.rmtree(home, ignore_errors=True)
            _build(repo, environment, python)
            (home / "built").write_text(f"{commit}\n{line}\n{version}\n", "utf-8")
    return environment


def _usual(repo: Path, commit: str) -> str:
    """The build of a commit whose user names none."""
    listed = (git(repo, "ls-tree", "--name-only", commit) or "").split("\n")
    return DEFAULT_BUILD if any(name in listed for name in _PROJECTS) else ""


def _version(python: str) -> str:
    """The version of a Python. Raises NotFound NO_PYTHON, UsageError OLD_PYTHON."""
    if python == sys.executable:
        return sys.version
    code = f"import sys; print(sys.version); sys.exit(sys.version_info < {OLDEST})"
    done = run([python, "-c", code], timeout_s=30) if shutil.which(python) else None
    if done is None or not done.stdout:
        raise NotFound("NO_PYTHON", f"There is no Python named {python!r}.", "Give the path of one.")
    if not done.ok:
        message = f"{python} is {done.stdout.split()[0]}; workloads run in {'.'.join(map(str, OLDEST))} or later."
        raise UsageError("OLD_PYTHON", message, "Give the path of a later one.")
    return done.stdout.strip()


def _build(repo: Path, environment: Environment, python: str) -> None:
    """Check the commit out, make the environment, and run the build. Raises BenchmarkError BUILD_FAILED."""
    # A clone, because builds ask git for the version, and a work tree of the user's repository would stay in its list.
    home = environment.folder
    home.mkdir()
    cloned = git(home, "clone", "--quiet", "--shared", "--no-checkout", str(repo), str(environment.tree))
    if cloned is None or git(environment.tree, "checkout", "--quiet", "--detach", environment.commit) is None:
        raise BenchmarkError("BUILD_FAILED", f"git could not check out {environment.name}.", "Is the disk full?")
    without_pip = ["--without-pip"] if not environment.build else []
    made = run([python, "-m", "venv", *without_pip, str(home / "venv")], timeout_s=300)
    if not made.ok:
        message = f"{python} could not make an environment: {last_line(made)}."
        raise BenchmarkError("BUILD_FAILED", message, "On Debian and Ubuntu: apt-get install python3-venv")
    if not environment.build:
        return
    done = environment.shell(environment.build, BUILD_S)
    log = home / "build.log"
    log.write_text(done.stdout + done.stderr, "utf-8")
    if not done.ok:
        message = f"{environment.build!r} failed at {environment.name}: {last_line(done)}"
        raise BenchmarkError("BUILD_FAILED", message, f"Its output is in {log}.")


def last_line(done: Completed) -> str:
    """The last words of a command, without the empty lines, summary and advice that pip ends with."""
    text, _, _ = (done.stdout + "\n" + done.stderr).partition("[end of output]")  # of what pip has run itself
    told = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith(_SUMMARIES)]
    if done.timed_out:
        return "it took too long"
    errors = [line for line in told if "error" in line.casefold()]
    return ((errors or told)[-1] if told else f"exit code {done.returncode}")[:300]
