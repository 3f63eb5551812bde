"""Kernels that a driver or a compiler makes of a program on a GPU: made once, and handed on to all its processes.

Each worker has empty caches of its own, so each would compile the same: half a second for kernels of a library that was
built for another GPU, seconds for a compiler. Of the baseline the verifier has run it, and left its caches. The
candidate runs once in a process of its own while the verifier opens the benchmark and the first workers load their
libraries. It sees no secrets: its tensors are its own. What it leaves is copied into folders that each worker has for
itself, before the program runs there, so that none can tell another one anything. Nobody waits for it: what it has not
made when the first workers have loaded their libraries, each makes for itself. So it is with what is tuned, which is
done where nothing else runs.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from aisp_mcp.harness.load import load_spec
from aisp_mcp.harness.pair import Options, Pair
from aisp_mcp.harness.places import KERNELS, Places
from aisp_mcp.harness.rng import CallRng, Pools
from aisp_mcp.harness.shim import entry
from aisp_mcp.harness.timing import CANDIDATE
from aisp_mcp.harness.workers import Confined, Place, WorkerProcess

LOOK_S = 0.005
MOST_FILES, MOST_BYTES = 4096, 256 << 20  # of a program's kernels; who leaves more hands on nothing
GROUP = "__grp__"  # Triton's files that name others by their whole paths
TUNED = ".autotune.json"


class Kernels:
    """Those of a pair. verifier: its place."""

    def __init__(self, pair: Pair, options: Options, places: Places, verifier: Place) -> None:
        argv = [sys.executable, "-P", "-m", "aisp_mcp.harness.kernels", str(pair.baseline), options.size]
        self._verifier = verifier
        self._candidate = Confined([*argv, str(pair.path), options.device], places.make("kernels"))

    def wait(self, workers: Iterable[WorkerProcess], deadline_s: float) -> None:
        """Until the candidate has run, or all of these have loaded their libraries and would wait for it, and no longer
        than so many seconds.
        """
        waiting, end_s = list(workers), time.monotonic() + deadline_s
        while self._candidate.process.poll() is None and time.monotonic() < end_s:
            if all(worker.loaded() for worker in waiting):
                break
            time.sleep(LOOK_S)

    def hand_on(self, workers: dict[int, WorkerProcess]) -> int:
        """Copy them to where these workers look for theirs, before they are told what to prepare. Returns how many
        files the candidate's has got; who has not ended hands on nothing.
        """
        done = self._candidate.process.poll() == 0
        if done:
            self._candidate.close()  # or something it has left could put others in their place meanwhile
        for side, worker in workers.items():
            if side != CANDIDATE:
                copy(self._verifier, worker.place)
        return copy(self._candidate.place, workers[CANDIDATE].place) if done else 0

    def close(self) -> None:
        """End what still runs. A second call does nothing."""
        self._candidate.close()


def copy(made: Place, wanted: Place) -> int:
    """Copy the kernels from one process's folder into another's, and return the number of files. What is no regular
    file stays there, and everything where it is too much.
    """
    source, target = made.folder, wanted.folder
    found = [
        path
        for name in KERNELS
        if not (source / name.lower()).is_symlink()
        for folder, _, files in os.walk(source / name.lower())
        for path in (Path(folder, file) for file in files)
        if stat.S_ISREG(path.lstat().st_mode) and not path.name.endswith(TUNED)
    ]
    if len(found) > MOST_FILES or sum(path.lstat().st_size for path in found) > MOST_BYTES:
        return 0
    for path in found:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.name.startswith(GROUP):
            place.write_bytes(path.read_bytes().replace(os.fsencode(made.seen), os.fsencode(wanted.seen)))
        else:
            shutil.copy2(path, place)
    return len(found)


def main() -> None:
    """python -m aisp_mcp.harness.kernels BASELINE SIZE CANDIDATE DEVICE: one call of the candidate."""
    baseline, size, path, device = sys.argv[1:5]
    spec, pools = load_spec(Path(baseline), size), Pools(device, random.getrandbits(48))
    params, inputs = (dict(make(CallRng(pools, random.getrandbits(48)))) for make in (spec.params, spec.inputs))
    run = entry({"path": path, "baseline": False, "size": size}, params, inputs)
    run(**inputs)
    if device == "cuda":
        pools.torch.cuda.synchronize()


if __name__ == "__main__":
    main()
