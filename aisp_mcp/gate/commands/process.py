"""Run a command once: isolated, on its own cores, with its time and resources measured by the parent.

Each run begins with copies of its own input files only, and its outputs are moved away before the next run starts.
Outputs are regular files, folders, and links between them; nothing is opened through a link that leads out.
"""

from __future__ import annotations

import filecmp
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.judge.placement import inside
from aisp_mcp.process import forbidden, isolation, tree
from aisp_mcp.process.isolation import NAMESPACES, Level
from aisp_mcp.process.run import MARK

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
OUTPUT = "stdout"
# Calls that could leave something for the next run outside its folder, or leave its cores.
FORBIDDEN = (*forbidden.PLACEMENT, *forbidden.KEYRINGS)


@dataclass(frozen=True)
class Limits:
    """Declared limits of each program: cores it may compute on, bytes of address space, seconds of one run."""

    cores: frozenset[int]
    memory_bytes: int | None
    timeout_s: float


@dataclass(frozen=True)
class Ran:
    """One run. seconds: wall time of the command; cpu_s: of the sandbox and all its processes, orphans included from L2
    on; code: None for a time-out.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    code: int | None
    stderr: str
    user_s: float = 0.0


def _environment(limits: Limits) -> dict[str, str]:
    """The variables of this process that a program sees."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    threads = str(len(limits.cores))
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # or bytecode of modules among its inputs would be an output
    return environment


def run(
    argv: Sequence[str],
    folder: Path,
    level: Level,
    limits: Limits,
    inputs: Mapping[str, str],
    hidden: Sequence[Path] = (),
) -> Ran:
    """Run the command in its folder, which gets its standard output as `stdout`.

    inputs: variables that name folders it may read. hidden: folders that appear empty to it, from L2 on. From there on,
    the first process of its namespace starts the clock when it lets a shell become the command, waits for it and counts
    what it used. Otherwise a shell writes a byte and becomes the command, and the clock starts with that byte.
    """
    environment = {**_environment(limits), **inputs, MARK: (mark := secrets.token_hex(8))}
    begun, tell = os.pipe()
    answer, account = os.pipe()
    shell = ["/bin/sh", "-c", 'printf x >&0; exec "$0" "$@" </dev/null', *argv]
    how: dict[str, Any] = {"memory_bytes": limits.memory_bytes, "forbidden": FORBIDDEN, "account": account}
    folders = {"writable": [folder], "readable": [Path(path) for path in inputs.values()], "hidden": hidden}
    shell = isolation.started_apart(argv) if level in NAMESPACES else shell
    wrapped = isolation.wrap(shell, level, **how, **folders)
    errors = folder.with_name(f"{folder.name}.stderr")
    with (folder / OUTPUT).open("wb") as out, errors.open("wb") as err, inside(limits.cores):
        process = subprocess.Popen(
            wrapped,
            cwd=folder,
            stdin=tell,  # a shell may not support descriptors above 9
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=True,
            pass_fds=[account] if level in NAMESPACES else [],
        )
    os.close(tell)
    os.close(account)
    timer = threading.Timer(limits.timeout_s, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(begun, "rb") as reader:
        reader.read(1)
    begin = time.perf_counter()
    with os.fdopen(answer) as reader:
        counted = json.loads(reader.read() or "{}")
    _, status, used = os.wait4(process.pid, 0)
    seconds = counted.get("seconds", time.perf_counter() - begin)
    timer.cancel()
    timer.join()
    if level not in NAMESPACES:  # elsewhere orphans end with the namespace
        tree.sweep_marked(MARK, mark)
    process.returncode = os.waitstatus_to_exitcode(status)
    code = None if seconds >= limits.timeout_s else process.returncode
    text = errors.read_text("utf-8", "replace")[-500:]
    if not counted:
        return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, code, text, used.ru_utime)
    return Ran(seconds, counted["cpu_s"], int(counted["peak_bytes"]), code, text, counted["user_s"])


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

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        yield from (Path(parent, name) for name in (*folders, *names))


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
