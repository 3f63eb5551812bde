"""A powercap folder whose package draws a constant power, and more for processor time of some processes.

python powercap_model.py FOLDER SUITE [BUSY_W]: counts workers that see this folder in their own mounts, until its input
ends: forks have the command line of the process that they were forked from. The counter wraps around every few seconds.
A negative BUSY_W is a device whose power falls below idle meanwhile.
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path

IDLE_W, BUSY_W, RANGE_UJ = 2.0, 20.0, 9_000_000
STEP_S, LOOKS = 0.01, 10  # of the counter; and how many steps lie between two looks for new threads


WORKER = b"aisp_mcp.judge.candidate.main"  # in the command line of what workers are forked from


def tasks(suite: bytes) -> list[Path]:
    """Files that say how long each thread of such a process has run."""
    paths = list[Path]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if WORKER in (process / "cmdline").read_bytes() and suite in (process / "mountinfo").read_bytes():
                paths += process.glob("task/*/schedstat")
        except OSError:
            continue
    return paths


def main() -> None:
    """Advance the counter until the input ends."""
    zone, suite = Path(sys.argv[1]) / "intel-rapl:0", sys.argv[2].encode()
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    busy_w = float(sys.argv[3]) if len(sys.argv) > 3 else BUSY_W
    began, spent_ns, step = time.monotonic(), dict[Path, int](), 0
    while not select.select([0], [], [], STEP_S)[0]:
        for task in tasks(suite) if step % LOOKS == 0 else list(spent_ns):
            try:
                spent_ns[task] = int(task.read_bytes().split()[0])
            except OSError:
                continue
        joules = IDLE_W * (time.monotonic() - began) + busy_w * sum(spent_ns.values()) / 1e9
        (zone / "fresh").write_text(f"{int(joules * 1e6) % RANGE_UJ}\n")
        (zone / "fresh").replace(zone / "energy_uj")
        if not step:
            print("ready", flush=True)
        step += 1


if __name__ == "__main__":
    main()
