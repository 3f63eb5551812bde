"""Judge pairs of commits of public projects with `aisp bench commits`, beside processor times taken by hand.

python validation/run_commit_pairs.py validation/commit_pairs.toml --mirror FOLDER --out OUT.json
    [--python PATH] [--preset default] [--at-once 4] [--seconds N] [--limit 300] [--only NAME] [--beside OTHER.json]

FOLDER has bare clones, OWNER+NAME each or OWNER+NAME/repo. Workloads of SWE-fficiency come from its own repository
there, or from files NAME.py that --workloads names. A record that exists is continued. The truth is the least processor
time of the workload at each commit, of several fresh processes, in the environments that aisp built. --beside compares
the verdicts with those of a record of another machine; `--only none` only prints that.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.validity import corpus

GENERATED = "predictions/workload_generation/workload_generation.jsonl"  # in swefficiency/swefficiency
MARGIN = 1.05
PROCESSES, PROCESSES_S = 5, 15.0  # of each commit, for the truth
# One process of the truth: what the file times, after its setup, once; or, without one, the least of several calls.
TIMED = """
import gc, inspect, runpy, sys, time, timeit
path, folder = sys.argv[1:]
def report(call, setup, number):
    if setup not in (None, "pass"):
        setup()
    gc.disable()
    least, end = float("inf"), time.perf_counter() + 0.3
    while True:
        begin = time.process_time()
        for _ in range(number):
            call()
        least = min(least, (time.process_time() - begin) / number)
        if setup not in (None, "pass") or time.perf_counter() > end:
            break
    print("SECONDS", least)
    sys.exit()
timeit.repeat = lambda stmt, setup="pass", number=1, **rest: report(stmt, setup, number)
# A file of GSO prepares inside run_test.
timeit.timeit = lambda stmt, number=1, **rest: report(stmt, lambda: None, number)
names = runpy.run_path(path, run_name="__main__")
if "run_test" in names:
    names["run_test"](prefix=folder + "/truth")
setup, workload = names.get("setup"), names["workload"]
if setup and inspect.signature(workload).parameters:
    made = []
    report(lambda: workload(made[-1]), lambda: made.append(setup()), 1)
report(workload, setup, 1)
"""


def repository(mirror: Path, name: str) -> Path:
    """The bare repository of OWNER/NAME."""
    folder = mirror / name.replace("/", "+")
    return folder / "repo" if (folder / "repo").is_dir() else folder


def workload_text(pair: dict[str, Any], mirror: Path, workloads: Path | None) -> str:
    """The pair's own workload, or that of its instance."""
    if "workload" in pair:
        return str(pair["workload"])
    if workloads:
        return (workloads / f"{pair['name']}.py").read_text("utf-8")
    argv = ["git", "-C", str(repository(mirror, "swefficiency/swefficiency")), "show", f"HEAD:{GENERATED}"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    found = (json.loads(line) for line in lines)
    return next(str(row["workload"]) for row in found if row["instance_id"] == pair["instance"])


def processor_seconds(pythons: list[tuple[str, Path]], workload: Path, cpus: str) -> list[float]:
    """Least processor time of the workload at both commits. pythons: Python and files of each, as aisp built them."""
    least, end = [float("inf")] * len(pythons), time.monotonic() + PROCESSES_S
    for turn in range(PROCESSES):
        for place, (python, tree) in enumerate(pythons):
            paths = os.pathsep.join(str(folder) for folder in (tree, tree / "src") if folder.is_dir())
            done = subprocess.run(
                ["taskset", "-c", cpus, python, "-s", "-c", TIMED, str(workload), str(workload.parent)],
                env={**os.environ, "PYTHONPATH": paths},
                cwd=workload.parent,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            words = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("SECONDS ")]
            if not words:
                raise RuntimeError(done.stderr.strip()[-200:])
            least[place] = min(least[place], float(words[0]))
        if turn and time.monotonic() > end:
            break
    return least


def built(home: Path, commit: str) -> tuple[str, Path]:
    """Python and files of the environment that aisp keeps for a commit."""
    marks = [mark for mark in (home / "environments").glob("*/built") if mark.read_text().startswith(commit)]
    folder = max(marks, key=lambda mark: mark.stat().st_mtime).parent
    return str(folder / "venv" / "bin" / "python"), folder / "tree"


def judged(pair: dict[str, Any], options: argparse.Namespace, cpus: str) -> dict[str, Any]:
    """One pair as a row."""
    repo = repository(options.mirror, pair["repository"])
    row: dict[str, Any] = {
        key: pair[key] for key in ("name", "repository", "suite", "claim", "published", "compiled") if key in pair
    }
    ids = [
        subprocess.run(["git", "-C", str(repo), "rev-parse", name], capture_output=True, text=True, check=True).stdout
        for name in (pair["base"], pair["head"])
    ]
    row |= {"base": ids[0][:12], "head": ids[1][:12], "load": os.getloadavg()[0]}
    home = options.home / f"cores-{cpus}"  # jobs of one home measure one after the other
    with tempfile.TemporaryDirectory() as place:
        workload = Path(place, "workload.py")
        workload.write_text(workload_text(pair, options.mirror, options.workloads), "utf-8")
        argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", "bench", "commits", *(one.strip() for one in ids)]
        argv += [str(workload), "--repo", str(repo), "--python", options.python, "--preset", options.preset]
        argv += ["--build", pair["build"]] if "build" in pair else []
        begin = time.monotonic()
        process = subprocess.Popen(
            ["taskset", "-c", cpus, *argv, "--json", "--timeout-s", str(options.limit)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | {"AISP_HOME": str(home)},
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=options.limit + 30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return row | {"error": f"no answer after {options.limit + 30} s"}
        row["seconds"] = time.monotonic() - begin
        try:
            result = json.loads(out)["result"]
            answer = result["rulings"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            return row | {"error": (out + err).replace(place, "")[-600:]}
        row |= {key: answer[key] for key in ("verdict", "ratio", "interval", "noise_floor", "sentence", "flags")}
        row["disturbed"] = result["noise"]
        try:
            times = processor_seconds([built(home, one.strip()) for one in ids], workload, cpus)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return row | {"truth": None, "truth_error": str(error)[:300]}
    return row | {"processor_s": times, "truth": times[0] / times[1]}


def side(value: float | None) -> int:
    """1 for a gain above the margin, -1 for such a loss, 0 for anything between."""
    return 0 if not value else (value > MARGIN) - (value < 1 / MARGIN)


def summary(rows: list[dict[str, Any]], beside: list[dict[str, Any]]) -> dict[str, Any]:
    """Verdicts beside the truth, and beside another machine's."""
    done = [row for row in rows if row.get("verdict")]
    signs = {"faster": 1, "slower": -1, "same": 0}
    large = [row for row in done if side(row.get("truth"))]
    document: dict[str, Any] = {
        "rows": len(rows),
        "errors": len(rows) - len(done),
        "verdicts": {
            word: sum(row["verdict"] == word for row in done) for word in sorted({r["verdict"] for r in done})
        },
        "truth above 5 %": len(large),
        "of them decided": sum(row["verdict"] in ("faster", "slower") for row in large),
        "of them with the sign of the truth": sum(signs.get(row["verdict"]) == side(row["truth"]) for row in large),
    }
    others = {row["name"]: row for row in beside if row.get("verdict")}
    if shared := [row for row in large if side(others.get(row["name"], {}).get("truth")) == side(row["truth"])]:
        same = [row["verdict"] == others[row["name"]]["verdict"] for row in shared]
        document["above 5 % on both machines"] = len(same)
        document["with the same verdict"] = sum(same)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workloads", type=Path)
    parser.add_argument(
        "--home", type=Path, default=Path(tempfile.gettempdir(), "commit-pairs"), help="of environments"
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="default")
    parser.add_argument("--at-once", type=int, default=1, help="rows, each on its own share of the cores")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no row after that")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a row")
    parser.add_argument("--only", action="append")
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    begin, cores = time.monotonic(), sorted(os.sched_getaffinity(0))
    rows = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    beside = json.loads(options.beside.read_text())["rows"] if options.beside else []
    free = queue.SimpleQueue[str]()
    share = len(cores) // options.at_once
    for number in range(options.at_once):
        free.put(",".join(map(str, cores[number * share : (number + 1) * share])))
    lock = threading.Lock()

    def store() -> None:
        what = "pairs of commits of public projects, with the processor time of both by hand"
        document = corpus.recorded(rows, "cpu", options.preset) | {"what": what, "summary": summary(rows, beside)}
        corpus.keep(options.out, document)

    def one(pair: dict[str, Any]) -> None:
        cpus = free.get()
        try:
            if time.monotonic() - begin > options.seconds:
                return
            row = judged(pair, options, cpus)
        finally:
            free.put(cpus)
        with lock:
            rows.append(row)
            print(json.dumps(row, ensure_ascii=False), flush=True)
            store()

    done = {row["name"] for row in rows if row.get("truth")}
    rows[:] = [row for row in rows if row["name"] in done]
    pairs = [
        pair
        for pair in tomllib.loads(options.table.read_text("utf-8"))["pair"]
        if pair["name"] not in done and (not options.only or pair["name"] in options.only)
    ]
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for future in [pool.submit(one, pair) for pair in pairs]:
            future.result()
    print(json.dumps(summary(rows, beside), ensure_ascii=False))


if __name__ == "__main__":
    main()
