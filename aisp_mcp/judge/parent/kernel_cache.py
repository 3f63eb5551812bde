"""Kernels that a driver or compiler builds for a program. They are built once and copied to all of its processes.

Each worker has its own empty caches, so each would compile the same kernels: half a second for kernels of a library
that was built for another GPU, seconds for a compiler, a quarter of a minute for C++. For the baseline, the verifier
has already run it and its caches are reused. The candidate runs once in a separate process, after the verifier has
opened the benchmark and allocated memory; on a CPU, only if its text names a compiler. It sees no secrets: its tensors
are its own. Its kernels are copied into each worker's private folders before the program runs there, so no worker can
pass information to another. If its program raises, they are copied as well, with a record of the extensions that could
not be built (protocol/failed_builds.py). If no compiler is named, workers that have loaded their libraries wait at most
GRACE_S for it, and only if the baseline had kernels built; each worker builds those that are not ready by then. The
same holds for tuning results. If processes have no namespaces of their own, nothing is shared: a process that shares
all files with others could replace their kernels.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from aisp_mcp.judge.candidate_needs import COMPILER
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent.processes import procfs
from aisp_mcp.judge.parent.processes.confined import SHOWN, Confined, Placement
from aisp_mcp.judge.parent.processes.placement import PlacementFactory
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.protocol import failed_builds
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.module_loader import common_of, entry, load_spec, problem_files, source_text
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import wording

MODULE = "aisp_mcp.judge.parent.kernel_cache"
RAISED = 1  # exit status of a candidate that raises
LOOK_S, GRACE_S = 0.005, 1.0
MOST_COMPILE_S, COMPILING_S = 900.0, 20.0  # seconds that compilation may take, and since the last sign of it
COMPILER_NAMES = {
    "ninja",
    "nvcc",
    "cicc",
    "ptxas",
    "cudafe++",
    "fatbinary",
    "gcc",
    "g++",
    "cc1plus",
    "as",
    "ld",
    "clang++",
}
MAX_FILES, MAX_BYTES = 4096, 256 << 20  # of a program's kernels; beyond this, none are copied
GROUP = "__grp__"  # Triton's files, which name others by absolute paths
BUILD, PRIVATE = "build.ninja", ("HOME", "TMPDIR", "XDG_CACHE_HOME")  # torch's, in the folder of an extension
TUNED = ".autotune.json"


def names_a_compiler(pair: Pair) -> bool:
    """Return True if the text of the candidate, or of `_common`, names a compiler."""
    return any(COMPILER.search(source_text(path)) for path in (pair.path, common_of(pair.baseline)))


class Kernels:
    """The kernels of a pair. verifier: its placement. caches: names of the variables that contain the cache folders.

    The candidate's process waits for begin() before it loads the candidate.
    """

    def __init__(
        self, pair: Pair, options: Options, placements: PlacementFactory, verifier: Placement, caches: Sequence[str]
    ) -> None:
        placement = placements.make("kernels")
        baseline = str(pair.baseline)
        if pair.path.parent != pair.baseline.parent:  # with other solutions next to it, which must not be seen
            baseline = placement.lend(pair.baseline)
            placement.lend(common_of(pair.baseline))
            for file in problem_files(pair.baseline):
                placement.lend(file, file.parent.name)
        words = ["-P", "-m", MODULE, baseline, options.size, str(pair.path), options.device]
        self._verifier, self._caches = verifier, caches
        self._may_compile = names_a_compiler(pair)
        go_signal, self._tell = os.pipe()
        self._candidate = Confined([sys.executable, *words], placement, stdin=go_signal, fresh=False)
        os.close(go_signal)

    def begin(self) -> None:
        """Start the candidate. A second call does nothing."""
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1

    def wait(self, workers: Iterable[WorkerProcess], deadline_s: float) -> None:
        """Wait until the candidate has run, or until all workers have loaded their libraries and waited long enough,
        but no longer than the deadline; if a compiler is named, as long as it compiles. Afterwards its process no
        longer runs.
        """
        waiting, begin_s = list(workers), time.monotonic()
        end_s, last_s = begin_s + deadline_s, begin_s + max(deadline_s, MOST_COMPILE_S)
        while self._candidate.process.poll() is None and time.monotonic() < end_s:
            if waiting and all(worker.loaded() for worker in waiting):
                waiting = []
                if not self._may_compile:
                    end_s = min(end_s, time.monotonic() + (GRACE_S if self._baseline_built() else 0.0))
            time.sleep(LOOK_S)
            if self._may_compile and time.monotonic() >= end_s and self._is_compiling():
                end_s = min(end_s + COMPILING_S, last_s)
        self.close()

    def _baseline_built(self) -> bool:
        """Return True if the baseline had kernels built, perhaps those of a library that has none for this GPU."""
        with suppress(OSError):
            return any(_files(self._verifier.folder, self._caches, tuned=True))
        return True

    def _is_compiling(self) -> bool:
        """Return True if a compiler runs for the candidate, or a file in its caches is new."""
        if any(procfs.name(pid) in COMPILER_NAMES for pid in procfs.tree(self._candidate.process.pid)):
            return True
        oldest_s = time.time() - COMPILING_S
        with suppress(OSError):
            found = _files(self._candidate.placement.folder, self._caches, tuned=True)
            return any(path.lstat().st_mtime > oldest_s for path in found)
        return False

    def hand_on(self, workers: dict[Role, WorkerProcess]) -> int:
        """Copy the kernels to the caches of these workers, before they prepare their program. Returns the number of
        files that each candidate's worker got; if the run crashed or was killed, nothing is copied.
        """
        for role, worker in workers.items():
            if role is not Role.CANDIDATE:
                copy(self._verifier, worker.placement, self._caches)
        return (
            copy(self._candidate.placement, workers[Role.CANDIDATE].placement, self._caches)
            if self._candidate.process.poll() in (0, RAISED)
            else 0
        )

    def unbuilt(self) -> list[Flag]:
        """A flag per extension of the candidate that was not built, with the compiler's first error. A program that
        falls back to something else is measured all the same.
        """
        flags = []
        with suppress(OSError):
            for path in _files(self._candidate.placement.folder, self._caches, tuned=False):
                if path.name == failed_builds.RECORD:
                    reason = failed_builds.read(path).get("reason", "")[:SHOWN]
                    message = wording.extension_not_built(path.parent.name, reason)
                    flags.append(Flag(code="extension_not_built", severity="warn", message=message, evidence={}))
        return flags

    def close(self) -> None:
        """End the processes that still run. A second call does nothing."""
        self._candidate.close()
        self.begin()  # the process has already ended


def copy(source: Placement, target: Placement, names: Sequence[str], tuned: bool = False) -> int:
    """Copy the kernels from one process's folder into another's, and return the number of files. Only regular files are
    copied, and none if they are too large or unreadable. names: of the caches. tuned: include tuning results.
    Extensions in a folder of their own, below HOME for example, are copied too.
    """
    with suppress(OSError):
        new_files = list(islice(_files(source.folder, names, tuned), MAX_FILES + 1))
        if len(new_files) <= MAX_FILES and sum(path.lstat().st_size for path in new_files) <= MAX_BYTES:
            for path in new_files:
                _copy(path, source, target)
            return len(new_files)
    return 0


def _files(folder: Path, names: Sequence[str], tuned: bool) -> Iterator[Path]:
    """A process's kernel files: all below its caches, and extensions that it built elsewhere. Raises OSError."""
    for name in (*names, *PRIVATE):
        if (folder / name.lower()).is_symlink():
            continue
        for inside, _, files in os.walk(folder / name.lower()):
            if name in PRIVATE and BUILD not in files:
                continue
            for path in (Path(inside, file) for file in files):
                if stat.S_ISREG(path.lstat().st_mode) and (tuned or not path.name.endswith(TUNED)):
                    yield path


def _copy(path: Path, source: Placement, destination: Placement) -> None:
    """Copy one kernel file. Raises OSError."""
    target = destination.folder / path.relative_to(source.folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.name.startswith(GROUP):
        target.write_bytes(path.read_bytes().replace(os.fsencode(source.seen), os.fsencode(destination.seen)))
    else:
        shutil.copy2(path, target)


def main() -> None:
    """python -m … kernel_cache BASELINE SIZE CANDIDATE DEVICE: one call of the candidate when the input ends."""
    baseline, size, path, device = sys.argv[1:5]
    spec = load_spec(Path(baseline), size)
    if device == "cuda":
        import torch

        torch.zeros(1, device=device)  # a context takes long, and no memory that the verifier may need until then
    sys.stdin.read()
    params, inputs = (dict(make(CallRng(device, random.getrandbits(48)))) for make in (spec.params, spec.inputs))
    common = str(common_of(Path(baseline)))
    run = entry({"path": path, "baseline": False, "size": size, "common": common}, params, inputs)
    run(**inputs)
    if device == "cuda":
        torch.cuda.synchronize()
    os._exit(0)  # the kernels are written, and shutting down an interpreter is slow


if __name__ == "__main__":
    main()
