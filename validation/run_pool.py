"""A judge server under many clients, with devices that do not exist. Not a test.

    python validation/run_pool.py [--clients 20] [--each 5] [--workers 4] [--devices 2] [--kill 3] [--out FILE]

Each submission prepares for 1 s, while others may measure, and holds its device for 2 s. Afterwards the
same submissions hold the device from the beginning, as a lock around the whole job does. Some workers are killed. The
windows are read from the leases' own records. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "front")]

import httpx2  # noqa: E402
from http_support import Served  # noqa: E402

PREPARE_S, MEASURE_S = 1.0, 2.0


def main() -> int:
    """Return 0 if no windows overlap and every submission has one answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("clients", 20), ("each", 5), ("workers", 4), ("devices", 2), ("kill", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out")
    options = parser.parse_args()
    record = {
        "settings": {
            **{k: v for k, v in vars(options).items() if k != "out"},
            "prepare_s": PREPARE_S,
            "measure_s": MEASURE_S,
        },
        "lease around timing": run(options, in_all=False),
        "lease around everything": run(options, in_all=True),
    }
    text = json.dumps(record, indent=1)
    if options.out:
        Path(options.out).write_text(text + "\n")
    print(text)
    found = record["lease around timing"]
    return int(found["overlaps"] + found["without_answer"] + found["judged_twice"] > 0)


def run(options: argparse.Namespace, in_all: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="aisp-pool-") as folder:
        os.environ.update(
            AISP_HOME=f"{folder}/home",
            AISP_TOOL_MODULES="pool_tools",
            PYTHONPATH=os.pathsep.join([str(ROOT / "tests" / "front"), str(ROOT)]),
        )
        words = ("aisp_mcp.front.cli.main", "serve-judge", "--workers", str(options.workers), "--queue", "2000")
        served = Served(command=words)
        try:
            return _measured(served, Path(folder), options, in_all)
        finally:
            served.stop()


def _measured(served: Served, folder: Path, options: argparse.Namespace, in_all: bool) -> dict[str, Any]:
    journal = folder / "journal"
    submitting, answers, lock = list[float](), dict[str, dict[str, Any]](), threading.Lock()

    def client(number: int) -> None:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{served.port}/api",
            headers={"Authorization": f"Bearer {served.token}"},
            timeout=60,
        ) as web:
            for turn in range(options.each):
                text = f"{number}-{turn}"
                args = {
                    "candidate": "c.py", "device": f"toy{number % options.devices}", "journal": str(journal),
                    "prepare_s": PREPARE_S, "measure_s": MEASURE_S, "in_all": in_all,
                }  # fmt: skip
                body = {"tool": "aisp_pool_weigh", "files": {"c.py": text}, "args": args, "priority": number % 3}
                began = time.monotonic()
                ticket = web.post("/judge", json=body)
                taken = time.monotonic() - began
                again = web.post("/judge", json=body)  # idempotent
                assert ticket.json()["job"]["job_id"] == again.json()["job"]["job_id"]
                while (answer := web.get(f"/judge/{ticket.json()['job']['job_id']}").json())["status"] in (
                    "queued",
                    "running",
                ):
                    time.sleep(0.1)
                with lock:
                    submitting.append(taken)
                    answers[text] = answer

    def killer() -> None:
        chance = random.Random(5)
        for _ in range(options.kill):
            time.sleep(chance.uniform(2, 5))
            lines = journal.read_text().splitlines() if journal.exists() else []
            for line in reversed(lines):
                text, _, pid = line.split()
                if text not in answers:
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                        killed.append(text)
                    except ProcessLookupError:
                        continue
                    break

    killed: list[str] = []
    began = time.monotonic()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
    threads.append(threading.Thread(target=killer))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    windows = _windows(folder)
    ended = [answer for answer in answers.values() if answer["status"] == "ok"]
    begun = Counter(line.split()[0] for line in journal.read_text().splitlines())
    return {
        "submissions": options.clients * options.each,
        "answers": len(ended),
        "without_answer": options.clients * options.each - len(ended),
        "killed_workers": len(killed),
        "begun_twice": sum(count == 2 for count in begun.values()),
        "judged_twice": sum(count > 2 for count in begun.values()),
        "overlaps": sum(_overlaps(found) for found in windows.values()),
        "seconds": round(seconds, 1),
        "device_busy": {name: round(_busy(found), 3) for name, found in windows.items()},
        "device_measuring": {name: round(len(found) * MEASURE_S / _span(found), 3) for name, found in windows.items()},
        "submit_p50_s": round(statistics.median(submitting), 3),
        "submit_max_s": round(max(submitting), 3),
    }


def _windows(folder: Path) -> dict[str, list[tuple[float, float]]]:
    found = {}
    for path in sorted((folder / "home" / "leases").glob("*.windows")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.stem] = sorted((row["began"], row["ended"]) for row in rows)
    return found


def _overlaps(found: list[tuple[float, float]]) -> int:
    return sum(earlier[1] > later[0] for earlier, later in itertools.pairwise(found))


def _span(found: list[tuple[float, float]]) -> float:
    return found[-1][1] - found[0][0]


def _busy(found: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in found) / _span(found)


if __name__ == "__main__":
    sys.exit(main())
