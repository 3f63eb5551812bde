"""Levels of isolation that this machine allows, and the command that runs a program in one.

L0 in process. L1 separate process: dies with its parent, no core files, file size limited. L2 adds user, mount, pid,
network and IPC namespaces: read-only file system except named folders, private /tmp and /dev/shm, no network, no view
of other processes, no capabilities, and every descendant dies with the program. L3 adds Landlock: the same limits for
files again in the kernel's access checks, and no TCP, signals or abstract sockets to the outside; sockets with a path
cannot be reached (sandbox.py).

The wrapped program is not the process that the caller starts but its grandchild (see sandbox.py): stop, continue and
kill the pid that `program_pid` returns. Killing the started process also ends everything. This does not defend against
bugs in the kernel or the GPU driver. A device given with devices=True is shared with everybody, and so is the IPC
namespace then: programs on a GPU can communicate through System V shared memory. A socket that another process creates
in a folder the program may write to, or directly in a folder with mount points below it, can be reached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from aisp_mcp.errors import Unavailable
from aisp_mcp.process import python, tree

Level = Literal["L0", "L1", "L2", "L3"]
NAMESPACES: tuple[Level, ...] = ("L2", "L3")  # levels at which a program has its own file system
_PROBE_S = 20
_VERSION = 2  # of the probe: a change invalidates old answers

_PROOF = """
import os, socket, sys
where, port, level, seen = sys.argv[1:]
def refused(call):
    try: call()
    except OSError: return True
    return False
refused(lambda: open(os.path.join(where, "forbidden"), "w").close())
open(os.path.join(where, "allowed", "file"), "w").close()
assert os.statvfs("/").f_flag & os.ST_RDONLY, "the file system is writable"
s = socket.socket(); s.settimeout(5)
assert refused(lambda: s.connect(("127.0.0.1", int(port)))), "the network can be reached"
if level == "L3":
    s = socket.socket(socket.AF_UNIX)
    server = os.path.join(os.path.dirname(seen), "server")
    assert refused(lambda: s.connect(server)), "a server's socket can be reached"
print("own /proc" if len([d for d in os.listdir("/proc") if d.isdigit()]) < 5 else "shared /proc")
"""


@dataclass(frozen=True)
class Isolation:
    """The highest level that was proved to work on this machine, by which mechanism, and what the next one lacks."""

    level: Level
    means: list[str]
    missing: list[str]


def wrap(argv: Sequence[str], level: Level, **limits: Any) -> list[str]:
    """The command that runs argv at this level, see confinement(); inherited descriptors and the environment are passed
    to the program as usual.
    """
    if level == "L0":
        return list(argv)
    return [*python.module("aisp_mcp.process.sandbox", json.dumps(confinement(argv, level, **limits))), *argv]


def started_apart(argv: Sequence[str]) -> list[str]:
    """A shell that starts another one and ends, and so leaves it to the namespace's first process. The other one names
    itself to that process, waits for its answer, and becomes the program. The peak memory of a program contains that of
    the process that it was forked from, and a shell is small.
    """
    become = 'printf %s $$ >&3; read -r _ <&4; exec "$0" "$@" 3>&- 4<&-'
    return ["/bin/sh", "-c", '/bin/sh -c "$0" "$@" </dev/null &', become, *argv]


def confinement(
    argv: Sequence[str],
    level: Level,
    *,
    read_only: bool = True,
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    seen_as: Mapping[Path, Path] | None = None,
    hidden: Sequence[Path] = (),
    network: bool = False,
    loopback: bool = False,
    devices: bool = False,
    memory_bytes: int | None = None,
    file_bytes: int | None = 64 * 2**30,
    disk_bytes: int | None = 16 * 2**30,
    processes: int | None = 4096,
    forbidden: Sequence[str] = (),
    account: int | None = None,
) -> dict[str, Any]:
    """Specification of what sandbox.py does to a program at this level, from L1 on.

    writable: existing folders that stay writable when read_only. readable: existing folders that are shown as they are,
    in any location, and as they change. The folders of this interpreter, the working folder and writable folders stay
    visible below /tmp; everything else there is hidden. seen_as: from L2 on, another path, of an existing folder, under
    which a program sees a writable folder, also as its working folder. loopback: a private loopback interface, for
    programs that connect to themselves over TCP; it leads nowhere else. devices: keep IPC shared, which CUDA needs
    between processes; device nodes are visible either way. hidden: from L2 on, nodes that cannot be opened, and folders
    that appear empty. Limits: address space, size of one file, disk space in the writable folders (and half of the free
    space there), processes and threads together (ordinary users, from L2 on). forbidden: system calls that fail
    (forbidden.py). account: from L2 on, a descriptor to which times and usage are written of a program that
    started_apart() starts. At L1, only these, the limits and the tie to the parent apply. From L2 on, the locations of
    secret_paths() cannot be read.
    """
    namespaces = level in NAMESPACES
    elsewhere = {folder.resolve(): str(shown_path.resolve()) for folder, shown_path in (seen_as or {}).items()}
    return {
        "namespaces": namespaces,
        "landlock": level == "L3" and read_only,
        "read_only": read_only,
        "writable": _shown(writable, elsewhere if namespaces else {}),
        "readable": [str(Path(path).resolve()) for path in readable] if namespaces else [],
        "seen_as": {shown_path: str(folder) for folder, shown_path in elsewhere.items()},
        "needed": (needed := _needed(argv)),
        "visible": sorted({*needed, os.getcwd()}),
        "hidden": [str(path) for path in hidden if path.exists() and not path.is_dir()],
        "secret": [*secret_paths(), *(str(path.resolve()) for path in hidden if path.is_dir())] if namespaces else [],
        "network": network,
        "loopback": loopback and namespaces,
        "devices": devices,
        "memory_bytes": memory_bytes,
        "file_bytes": file_bytes,
        "disk_bytes": disk_bytes,
        "processes": processes,
        "forbidden": list(forbidden),
        "account": account if namespaces else None,
    }


def _shown(folders: Sequence[Path], elsewhere: Mapping[Path, str]) -> list[str]:
    """The paths at which a program sees these folders."""
    return [elsewhere.get(path, str(path)) for path in (Path(folder).resolve() for folder in folders)]


def _needed(argv: Sequence[str]) -> list[str]:
    """Folders that a Python program needs to see, even below a hidden one."""
    package = Path(__file__).resolve().parents[2]
    needed = {sys.prefix, sys.base_prefix, str(package), *filter(None, sys.path)}
    for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        needed |= {path for path in os.environ.get(name, "").split(os.pathsep) if path.startswith("/")}
    needed |= {os.path.dirname(word) for word in argv if word.startswith("/") and os.path.isfile(word)}
    return sorted(path for path in needed if os.path.isdir(path))


def program_pid(started: int, level: Level, timeout_s: float = 10.0) -> int:
    """Pid, as the caller sees it, of the program in the process `started` by a wrapped command.

    Raises Unavailable ISOLATION_FAILED if it does not appear in time.
    """
    pid, depth = started, 2 if level in NAMESPACES else 0
    deadline = time.monotonic() + timeout_s
    while depth:
        below = tree.children(pid)
        if below:
            pid, depth = below[0], depth - 1
        elif time.monotonic() > deadline or tree.start_time(started) is None:
            raise Unavailable("ISOLATION_FAILED", f"The isolated program did not start at {level}.", "See its output.")
        else:
            time.sleep(0.001)
    return pid


def first_pid(started: int, level: Level) -> int | None:
    """Pid of the first process of the namespace, to which every orphan belongs; None below L2."""
    below = tree.children(started) if level in NAMESPACES else []
    return below[0] if below else None


def demand(wish: str) -> Level:
    """The level to use: the best for "auto", else exactly the requested one. Raises Unavailable ISOLATION_LEVEL."""
    best = probe()
    if wish == "auto":
        return best.level
    order: tuple[Level, ...] = ("L0", "L1", "L2", "L3")
    for level in order:
        if level == wish and order.index(level) <= order.index(best.level):
            return level
    raise Unavailable(
        "ISOLATION_LEVEL",
        f"Isolation level {wish[:20]} is not available here; {best.level} is. Missing: {', '.join(best.missing)}.",
        f"Use auto or {best.level}.",
    )


@cache
def probe() -> Isolation:
    """Try each level with a real program, best first. The answer is cached until the next boot, per user."""
    path = _cache_file("")
    if path is None:
        return _probe()
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Isolation(**json.loads(path.read_text("utf-8")))
    isolation = _probe()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(isolation)), "utf-8")
    return isolation


def works_until_boot(question: str, attempt: Callable[[], bool]) -> bool:
    """Return the attempt's result. Success is remembered until the next boot, per user; a failure may be temporary.

    question: everything that the result depends on.
    """
    path = _cache_file(question)
    if path is not None and path.exists():
        return True
    works = attempt()
    if works and path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return works


def _own_namespace() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/user")
    return ""


def _cache_file(question: str) -> Path | None:
    """File that caches an answer; None for a user without a home folder."""
    import platformdirs

    words = f"{_VERSION} {tree.namespace()} {os.getuid()} {sys.executable} {_own_namespace()} {question}"
    key = hashlib.sha256(words.encode()).hexdigest()[:16]
    with contextlib.suppress(RuntimeError):
        folder = Path(platformdirs.user_cache_dir("aisp", appauthor=False))
        return folder / f"isolation-{key}.json" if folder.is_absolute() else None
    return None


def _probe() -> Isolation:
    from aisp_mcp.process import kernel

    if sys.platform != "linux":
        return Isolation("L0", [], [f"{sys.platform}: isolation is made for Linux"])
    abi = kernel.landlock_abi()
    missing: list[str] = []
    if not abi:
        missing.append("L3: no Landlock in this kernel")
    levels: tuple[Level, ...] = ("L3", "L2") if abi else ("L2",)
    for level in levels:
        works, result = _try(level)
        if works:
            means = ["limits", "user, mount, pid and network namespaces", result]
            return Isolation(level, means + [f"Landlock ABI {abi}"] * (level == "L3"), missing)
        missing.append(f"{level}: {result}")
    return Isolation("L1", ["limits", "dies with its parent"], missing)


def _try(level: Level) -> tuple[bool, str]:
    """Run a program at this level that attempts everything forbidden. Returns (everything was refused, its output)."""
    import socket
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
    ):
        allowed, seen = Path(folder, "allowed"), Path(folder, "seen", "file")
        allowed.mkdir()
        seen.parent.mkdir()
        seen.touch()
        local.bind(str(seen.with_name("server")))
        local.listen()
        arguments = [folder, str(server.getsockname()[1]), level, str(seen)]
        argv = wrap([sys.executable, "-I", "-c", _PROOF, *arguments], level, writable=[allowed])
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=_PROBE_S, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            return False, "the probe hung"
        except OSError as error:  # such as an interpreter that this user may not start
            return False, f"the probe did not start: {error.strerror}"
        if Path(folder, "forbidden").exists() or (done.returncode == 0 and not Path(allowed, "file").exists()):
            return False, "files are not isolated"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"the probe ended with {done.returncode}"


# Locations of keys and tokens that an ordinary user, or root as the user of a container, can read.
_SYSTEM = (
    *("/run/secrets", "/var/run/secrets", "/run/credentials", "/run/user", "/etc/shadow", "/etc/gshadow", "/etc/ssh"),
    *("/etc/kubernetes", "/etc/ssl/private", "/var/lib/cloud", "/var/lib/docker", "/var/lib/kubelet"),
)
# Variables that name a file or folder with secrets; lists are separated like PATH.
_NAMED = (
    *("AISP_HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG"),
    *("DOCKER_CONFIG", "GIT_CONFIG_GLOBAL", "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH"),
    *("KUBECONFIG", "NETRC", "NPM_CONFIG_USERCONFIG", "PGPASSFILE", "PIP_CONFIG_FILE", "SSH_AUTH_SOCK"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)
# Folders that every program needs: a link to one of them hides nothing.
_TOP = "bin dev etc home lib lib64 nix opt proc root run sbin sys tmp usr var"
_NEVER = ("/", *(f"/{name}" for name in _TOP.split()), "/dev/shm", "/var/tmp", "/dev/null")


def secret_paths(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Existing paths with links resolved, outermost only: the store, dot-files of the home folder, system locations."""
    homes = _homes(environ)
    never_hidden = {*_NEVER, *homes, *(os.path.dirname(home) for home in homes)}
    candidates = {os.path.realpath(path) for path in _candidates(homes, environ) if os.path.lexists(path)}
    return _outermost(path for path in candidates if path not in never_hidden and os.path.exists(path))


def _homes(environ: Mapping[str, str]) -> list[str]:
    """The home folder according to the environment and to the system; either may be missing."""
    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a container may run as a user without an entry
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return sorted({os.path.realpath(path) for path in homes if path.startswith("/") and os.path.isdir(path)})


def _candidates(homes: list[str], environ: Mapping[str, str]) -> Iterator[str]:
    yield from _SYSTEM
    for name in _NAMED:
        yield from (os.path.abspath(path) for path in environ.get(name, "").split(os.pathsep) if path)
    for name in ("token", "stored_tokens"):
        yield os.path.join(environ.get("HF_HOME") or "/nowhere", name)
    for home in homes:
        try:
            yield from (os.path.join(home, name) for name in os.listdir(home) if name.startswith("."))
        except OSError:  # a folder that we cannot list, the program cannot list either
            continue


def _outermost(paths: Iterator[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(paths):
        if not any(path.startswith(above + "/") for above in outermost):
            outermost.append(path)
    return outermost
