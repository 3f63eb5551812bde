"""The other end of a connection to a host: what it lacks is received here, by the hash of its content.

The submitting machine sends the text of this file, so it may import nothing but the standard library. Once the package
has arrived, `host.py` continues on the same connection. A message is a line of JSON; `bytes` in it is the length of
what follows. One answer follows each request, so nothing is ever read ahead.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

MARK = "aisp-host:"  # before every answer: start-up files of a shell may print, too
CHUNK = 1 << 20
KEEP_S = 30 * 86_400.0  # a folder or file that nothing has used for this long is removed

Handler = Callable[[dict[str, Any], BinaryIO], dict[str, Any]]


class Refusal(Exception):
    """An error for the submitting machine: its code and one sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shelf:
    """Files by hash, and folders made of them, below one folder of this user."""

    def __init__(self, base: str) -> None:
        self.files, self.trees = os.path.join(base, "files"), os.path.join(base, "trees")
        for folder in (self.files, self.trees):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def tree(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """The path of a folder with this content; None if there is none, or none that still is what was sent.

        One that a job has changed stays, because the job may be using it.
        """
        for holder in sorted(glob.glob(os.path.join(self.trees, f"{request['digest']}*"))):
            try:
                with open(os.path.join(holder, "files.json"), encoding="utf-8") as file:
                    listed = json.load(file)
            except (OSError, ValueError):
                continue
            path = os.path.join(holder, listed["name"])
            if all(hash_of(os.path.join(path, name)) == digest for name, _, digest in listed["files"]):
                os.utime(holder)
                return {"path": path}
        return {"path": None}

    def lacking(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """The hashes of those that are not here."""
        return {"lacking": [digest for digest in request["digests"] if not os.path.exists(self._file(digest))]}

    def put(self, request: dict[str, Any], source: BinaryIO) -> dict[str, Any]:
        """Store files that follow one another; returns the hashes of those that have other content by now."""
        changed, problem = [], None
        for digest, size in request["files"]:
            try:
                if problem is None and not self._store(digest, size, source):
                    changed.append(digest)
                elif problem is not None:
                    _skip(source, size)
            except OSError as error:
                problem = error
        if problem is not None:
            raise problem
        return {"changed": changed}

    def build(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """Make a folder of stored files; returns its path."""
        made = tempfile.mkdtemp(prefix=".new-", dir=self.trees)
        try:
            for name, mode, digest in request["files"]:
                target = os.path.join(made, request["name"], name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(self._file(digest), target)
                os.chmod(target, mode)
                os.utime(self._file(digest))
            os.makedirs(os.path.join(made, request["name"]), exist_ok=True)
            with open(os.path.join(made, "files.json"), "w", encoding="utf-8") as file:
                json.dump({"name": request["name"], "files": request["files"]}, file)
            holder = os.path.join(self.trees, f"{request['digest']}-{os.path.basename(made)[5:]}")
            os.rename(made, holder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return {"path": os.path.join(holder, request["name"])}

    def forget_old(self) -> None:
        """Remove what has not been used for a long time."""
        old = time.time() - KEEP_S
        for folder in (self.trees, self.files):
            for entry in os.scandir(folder):
                if entry.stat(follow_symlinks=False).st_mtime < old:
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

    def _file(self, digest: str) -> str:
        return os.path.join(self.files, digest)

    def _store(self, digest: str, size: int, source: BinaryIO) -> bool:
        handle, path = tempfile.mkstemp(prefix=".new-", dir=self.files)
        found, left = hashlib.sha256(), size
        try:
            with os.fdopen(handle, "wb") as file:
                try:
                    while left:
                        chunk = _exactly(source, min(left, CHUNK))
                        left -= len(chunk)
                        found.update(chunk)
                        file.write(chunk)
                except OSError:
                    _skip(source, left)
                    raise
            if found.hexdigest() != digest:
                return False
            os.replace(path, self._file(digest))
            return True
        finally:
            if os.path.exists(path):
                os.unlink(path)


def hash_of(path: str) -> str | None:
    """SHA-256 of a file's content; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def facts(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """This host: its name, its Python, its clock, room for files, and which packages are missing."""
    versions = dict(_versions(request["packages"]))
    room = shutil.disk_usage(base())
    return {
        "node": os.uname().nodename,
        "system": f"{os.uname().sysname} {os.uname().machine}",
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "folder": base(),
        "free_bytes": room.free,
        "clock": time.time(),
        "packages": versions,
        "ends_with_session": _ends_with_session(),
        "gpu_driver": os.path.exists("/proc/driver/nvidia/version"),
    }


def _versions(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, None


def _ends_with_session() -> bool:
    """Return True if logind ends all processes of a user with the last session."""
    folders = ["/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/usr/lib/systemd/logind.conf.d"]
    files = ["/etc/systemd/logind.conf"]
    files += [os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    lingers = os.path.exists(os.path.join("/var/lib/systemd/linger", os.environ.get("USER", "?")))
    for path in files:
        try:
            with open(path, encoding="utf-8") as file:
                if any(line.replace(" ", "").lower().startswith("killuserprocesses=yes") for line in file):
                    return not lingers
        except OSError:
            continue
    return False


def base() -> str:
    """The folder of this user for what is received; made if it does not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "aisp-host")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def start(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Continue as the package that was received; its first answer is the answer to this request.

    In this process: another interpreter would load once more what this one has, 0.2 s.
    """
    os.environ["PYTHONPATH"] = request["folder"]  # of processes that this one starts
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.path[:] = [request["folder"], *filter(None, sys.path)]  # and not the current folder
    sys.exit(importlib.import_module("aisp_mcp.jobs.host").main())


def serve(handlers: dict[str, Handler], source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the connection ends."""
    while line := source.readline():
        request = json.loads(line)
        payload: Iterable[bytes] = ()
        try:
            answer = handlers[request["op"]](request, source)
            payload = answer.pop("payload", ())
        except Refusal as error:
            answer = {"error": error.code, "message": str(error)}
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = error.strerror or str(error)
            answer = {
                "error": "HOST_FULL" if full else "HOST_FAILED",
                "message": f"{error.filename or base()}: {reason}",
            }
        except Exception as error:
            traceback.print_exc()
            code = getattr(error, "code", "HOST_FAILED")  # of an error of the package
            answer = {"error": code, "message": str(error) or type(error).__name__}
        reply(answer, target, payload)


def reply(answer: dict[str, Any], target: BinaryIO, payload: Iterable[bytes] = ()) -> None:
    """Send one answer and what follows it."""
    target.write(MARK.encode() + json.dumps(answer).encode() + b"\n")
    for chunk in payload:
        target.write(chunk)
    target.flush()


def contents(files: Iterable[tuple[str, int]]) -> Iterator[bytes]:
    """Files one after another, each by its path: exactly as many bytes as announced, even if one has changed."""
    for path, size in files:
        with open(path, "rb") as file:
            while size:
                chunk = file.read(min(size, CHUNK)) or bytes(min(size, CHUNK))
                size -= len(chunk)
                yield chunk


def _exactly(source: BinaryIO, size: int) -> bytes:
    """Read that many bytes. Ends the process at the end of the connection: nothing half received counts."""
    data = source.read(size)
    if len(data) < size:
        os._exit(1)
    return data


def _skip(source: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(source, min(size, CHUNK)))


def shelf_handlers(shelf: Shelf) -> dict[str, Handler]:
    """The requests about files, the same before and after the package has arrived."""
    return {"tree": shelf.tree, "lacking": shelf.lacking, "put": shelf.put, "build": shelf.build, "facts": facts}


def main() -> None:
    """Receive the package, and start it."""
    own = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not end up between answers
    target = os.fdopen(own, "wb")
    try:
        handlers = {**shelf_handlers(Shelf(base())), "start": start}
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    os.dup2(own, 1)
    reply({"ready": True}, target)
    serve(handlers, sys.stdin.buffer, target)


if __name__ == "__main__":
    main()
