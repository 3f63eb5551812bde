"""python -m aisp_mcp.jobs.pod: run one job in a pod, and write its progress, log and answer to the pod's own log.

The log outlives the container until the pod is removed, and whoever submitted the job may read it later. A line begins
with the kind of what follows: a line of the job's log, its progress, and at the end a part of an archive of the run
folder. `unpack.py` has put the job into the folder that AISP_POD names.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, TextIO

from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors import handover, parcels
from aisp_mcp.jobs.node import POD_JOB
from aisp_mcp.process.python import module

ROOT = "/aisp-sent"  # of the paths in a job that is sent to a pod, and in the answer that comes back
LOG, PROGRESS, PART, END = "| ", "aisp-progress ", "aisp-part ", "aisp-end "
TELL_S = 0.5
LINE_BYTES = 48_000
# A node begins a new file after 10 MB, and only the newest is served: log and answer must fit together.
LOG_BYTES, ANSWER_BYTES = 1_000_000, 6_000_000
_FIRST = ("envelope.json", handover.ROWS, handover.EXIT, log.NAME)
_LEFT_THERE = ("heartbeat", "questions", handover.CLAIM, handover.REQUEST, handover.PROGRESS)


class Teller:
    """Writes what is new in a run folder."""

    def __init__(self, folder: Path, target: TextIO) -> None:
        self.folder, self.target = folder, target
        self._at, self._file = 0, 0
        self._told = 0
        self._progress: Any = None

    def tell(self) -> None:
        """Write new lines of the log, and the progress if it has changed."""
        with contextlib.suppress(OSError), open(self.folder / log.NAME, "rb") as file:
            number = os.fstat(file.fileno()).st_ino
            if number != self._file:
                self._at, self._file = 0, number
            file.seek(self._at)
            new = file.read()
            self._at += len(new)
            for line in new.decode("utf-8", "replace").splitlines():
                if self._told < LOG_BYTES:
                    self.target.write(f"{LOG}{line[:10_000]}\n")
                    self._told += len(line) + len(LOG)
        progress = handover.read(self.folder, handover.PROGRESS)
        if progress and progress != self._progress:
            self._progress = progress
            self.target.write(f"{PROGRESS}{json.dumps(progress)}\n")
        self.target.flush()


def write_answer(folder: Path, target: TextIO) -> None:
    """Write an archive of the run folder: the answer, and of other files as many as fit, the smallest first."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    found = {str(path.relative_to(folder)): path for path in files}
    names = [name for name in found if name.split("/")[0] not in _LEFT_THERE]
    names.sort(key=lambda name: (name not in _FIRST, found[name].stat().st_size))
    packed, left = io.BytesIO(), list[str]()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            if name not in _FIRST and packed.tell() + found[name].stat().st_size > ANSWER_BYTES:
                left.append(name)
            else:
                archive.add(found[name], name)
    data = packed.getvalue()
    target.write("\n")
    for at in range(0, len(data), LINE_BYTES):
        target.write(f"{PART}{base64.b64encode(data[at : at + LINE_BYTES]).decode()}\n")
    target.write(f"{END}{json.dumps({'sha256': hashlib.sha256(data).hexdigest(), 'left': left})}\n")
    target.flush()


def read_answer(text: str) -> tuple[dict[str, bytes], list[str]] | None:
    """The files of an archive in a pod's log, and the names of those that did not fit; None if it is not whole."""
    lines = text.splitlines()
    ends = [line for line in lines if line.startswith(END)]
    if not ends:
        return None
    end = json.loads(ends[-1][len(END) :])
    data = b"".join(base64.b64decode(line[len(PART) :]) for line in lines if line.startswith(PART))
    if hashlib.sha256(data).hexdigest() != end["sha256"]:
        return None
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name] = content.read()
    return files, end["left"]


def main() -> int:
    """Run the job to its end; returns its own exit code. SIGTERM, as at the removal of the pod, cancels it."""
    root = Path(os.environ["AISP_POD"], "job")
    job = parcels.renamed(json.loads((root / "job.json").read_text("utf-8")), {ROOT: str(root)})
    folder = root / "home" / "runs" / job["id"]
    folder.mkdir(parents=True)
    handover.write(folder, handover.REQUEST, {**job, "cwd": job["cwd"] or "/"})
    environ = {**os.environ, **job["env"], POD_JOB: os.environ[POD_JOB]}
    node = subprocess.Popen(module("aisp_mcp.jobs.node", str(folder), python=sys.executable), env=environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.terminate())
    teller = Teller(folder, sys.stdout)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = node.wait(TELL_S)
            break
        teller.tell()
    teller.tell()
    for name in ("envelope.json", handover.ROWS):
        answer = handover.read(folder, name)
        if answer is not None:
            handover.write(folder, name, parcels.renamed(answer, {str(root): ROOT}))
    write_answer(folder, sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
