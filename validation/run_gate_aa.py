"""Hold the gate for pull requests to its promise: no false failures, and slowdowns found as far as it says it can.

python validation/run_gate_aa.py record OUT.json --runs 30 [--slower 0.05]    real gates over two commits; adds to OUT
python validation/run_gate_aa.py pulls OUT.json [RECORD.json …] --pulls 30000  pull requests drawn from what is recorded

record: a repository with one small benchmark; the head is the base commit itself, or one whose library computes that
much more. pulls: each pull request has five benchmarks whose noise is that of A/A comparisons recorded on one machine,
by the gate or by tools/calibrate.py; a slowdown is planted by shifting ratio and interval, which changes nothing else
that the verdict rests on. Judged as the gate does, further looks included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from aisp_mcp.gate.policy import LOOKS
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.statistics import Estimate
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN, WIDEST_SAME, Numbers, word
from aisp_mcp.process.python import module
from aisp_mcp.system import manifest

SPEC = '''"""The library's zeta."""
from aisp_mcp.bench import Benchmark, Work
from mylib import zeta


class Spec(Benchmark):
    def inputs(self, rng):
        return {"x": rng.randn(20000), "q": rng.randn(20000)}

    def work(self):
        return Work(flops=20000)

    def run(self, x, q):
        return zeta(x, q)
'''
VARIANT = '"""The library\'s."""\nfrom mylib import zeta as run\n'
# Numbers beyond those that every commit needs, so that a slower library can compute more of them.
LIBRARY = """import torch


def zeta(x, q):
    return torch.special.zeta(x[:{numbers}].abs() + 1.5, q[:{numbers}].abs() + 1)[:12000]
"""
NUMBERS, BENCHMARKS = 16000, 5
PLANTED = (0.0, 0.02, 0.05, 0.10)


def commits(folder: Path, slower: float) -> None:
    """A repository whose second commit computes `slower` more, as a fraction."""
    chapter = folder / "benchmarks" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "baseline_zeta.py").write_text(SPEC)
    (chapter / "optimized_zeta.py").write_text(VARIANT)
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number, more in enumerate((1.0, 1.0 + slower)):
        (folder / "mylib.py").write_text(LIBRARY.format(numbers=round(NUMBERS * more)) + f"# {number}\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", str(number)], check=True)


def record(target: Path, runs: int, slower: float) -> None:
    """Run gates; each is on disk before the next one starts."""
    data = json.loads(target.read_text()) if target.exists() else {**_machine(), "gates": []}
    with tempfile.TemporaryDirectory(prefix="aisp-gate-aa-") as name:
        repo, home = Path(name) / "repo", Path(name) / "home"
        commits(repo, slower)
        for number in range(runs):
            words = ["bench", "gate", "--base", "HEAD~1", "--head", "HEAD", "--repo", str(repo), "--json"]
            env = {**os.environ, "AISP_HOME": str(home)}
            line = module("aisp_mcp.front.cli.main", *words, python=sys.executable)
            done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
            result = json.loads(done.stdout)["result"]
            run = json.loads((Path(result["comment_path"]).parent / "run.json").read_text("utf-8"))
            data["gates"].append(_gate(slower, result, run["comparisons"][0]))
            target.write_text(_text(data))
            print(f"{number + 1}/{runs} {result['rows'][0]['sentence']}", flush=True)


def _machine() -> dict[str, Any]:
    seen = manifest.manifest()
    host, software = seen.get("host") or {}, seen.get("software") or {}
    return {
        "what": "gates over two commits, and pull requests drawn from recorded comparisons",
        "date": time.strftime("%Y-%m-%d"),
        "device": f"{host.get('cpu')}, {host.get('usable')} cores",
        "software": {name: software.get(name) for name in ("python", "torch") if software.get(name)},
    }


def _gate(slower: float, result: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    interval = row["interval"] or {"low": None, "high": None}
    fields = {name: row[name] for name in ("verdict", "ratio", "margin", "noise_floor")}
    return {
        "slower": slower,
        "outcome": result["rows"][0]["outcome"],
        "passed": result["passed"],
        **fields,
        "low": interval["low"],
        "high": interval["high"],
        "clocks": {name: (row["clocks"] or {}).get(name) for name in ("used", "ratio_parent", "ratio_worker")},
        "flags": [flag["code"] for flag in row["flags"]],
        "seconds": round(result["seconds"], 1),
    }


def _text(data: dict[str, Any]) -> str:
    """JSON with a line per gate and per row of pull requests."""
    tables = ("gates", "pulls")
    parts = [json.dumps({key: value for key, value in data.items() if key not in tables}, indent=1)[:-2]]
    for name in tables:
        rows = ",\n".join("  " + json.dumps(row) for row in data.get(name, []))
        parts.append(f' "{name}": [\n{rows}\n ]' if rows else f' "{name}": []')
    return ",\n".join(parts) + "\n}\n"


# --- pull requests drawn from records


def again(row: dict[str, Any], slower: float) -> Verdict:
    """The verdict of a recorded A/A comparison, had the head been slower by that fraction."""
    if row["ratio"] is None or row["verdict"] in ("invalid", "incorrect"):
        return Verdict(row["verdict"])
    if _bounded(row):  # a bound proves no loss
        return Verdict.INCONCLUSIVE
    mean, low, high = (math.log(row[name]) - math.log1p(slower) for name in ("ratio", "low", "high"))
    estimate = Estimate(mean, low, high, 0.95, 0.0, 5)
    return word(Numbers(estimate, math.log1p(row["noise_floor"]), row["margin"], row["margin"] <= WIDEST_SAME))[0]


def _bounded(row: dict[str, Any]) -> bool:
    """True where the ratio is a lower bound of a gain. calibrate.py has the clock alone, older records its old name."""
    used = row["clocks"]["used"] if "clocks" in row else row["clock"]
    return used in ("lower_bound", "proven")


def shows(row: dict[str, Any], slower: float) -> bool:
    """True where one look of the gate, with this row's noise, shows a slowdown of any size."""
    if row["ratio"] is None or row["verdict"] in ("invalid", "incorrect") or _bounded(row):
        return False
    return bool(row["high"] < 1 + slower and row["ratio"] * (1 + row["noise_floor"]) < 1 + slower)


def resolved(row: dict[str, Any], slower: float) -> bool:
    """True where the resolution that the gate gives is below the slowdown."""
    if row["ratio"] is None or _bounded(row):
        return False
    half = (row["high"] - row["low"]) / 2 / row["ratio"]
    return bool(half + max(half, row["noise_floor"]) < slower)


def pulls(rows: list[dict[str, Any]], count: int, slower: float) -> dict[str, Any]:
    """Pull requests of five benchmarks, each slower by that fraction; every look has the noise of a row of its own."""
    words = [again(row, slower) for row in rows]
    slow = np.array([shows(row, slower) for row in rows])
    opens = slow & np.array([word in (Verdict.SLOWER, Verdict.INCONCLUSIVE) for word in words])
    sizes = np.array([math.log(row["ratio"] or 1.0) - math.log1p(slower) for row in rows])
    stated = np.array([resolved(row, slower) for row in rows])
    looks = np.random.default_rng([round(slower * 1000), len(rows)]).integers(
        len(rows), size=(LOOKS, count, BENCHMARKS)
    )
    first = looks[0]
    alarms = opens[first] & slow[looks[1:]].all(axis=0) & (sizes[looks].mean(axis=0) < -math.log1p(MIN_MARGIN))
    unchanged = np.array([word is Verdict.SAME for word in words])[first]
    return {
        "slower": slower,
        "pulls": count,
        "failed": int(alarms.any(axis=1).sum()),
        "failed_after_one_look": int(np.array([word is Verdict.SLOWER for word in words])[first].any(axis=1).sum()),
        "second_looks": int(opens[first].sum()),
        "found": int(alarms.sum()),
        "unchanged": int(unchanged.sum()),
        "resolved": int(stated[first].sum()),
        "found_of_resolved": int((stated[first] & alarms).sum()),
        "resolved_in_all_looks": int(stated[looks].all(axis=0).sum()),
        "found_of_these": int((stated[looks].all(axis=0) & alarms).sum()),
    }


def recorded(path: Path) -> list[dict[str, Any]]:
    """A/A comparisons of five replicates in a record of this file or of tools/calibrate.py."""
    data = json.loads(path.read_text())
    rows = [row for row in data.get("gates", []) if row["slower"] == 0]
    return rows + [row for row in data.get("runs", []) if row["effect"] == 0 and row["replicates"] == 5]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    real, simulated = commands.add_parser("record"), commands.add_parser("pulls")
    for command in (real, simulated):
        command.add_argument("out", type=Path)
    real.add_argument("--runs", type=int, default=30)
    real.add_argument("--slower", type=float, default=0.0)
    simulated.add_argument("records", type=Path, nargs="*", help="more records, such as results/calibration-2-cores*")
    simulated.add_argument("--pulls", type=int, default=30_000)
    return parser.parse_args()


def main() -> None:
    """Run one of the two."""
    options = arguments()
    if options.command == "record":
        record(options.out, options.runs, options.slower)
        return
    data = json.loads(options.out.read_text())
    data["pulls"] = []
    for path in (options.out, *options.records):
        rows = recorded(path)
        for slower in PLANTED:
            data["pulls"].append({"record": path.name, "comparisons": len(rows), **pulls(rows, options.pulls, slower)})
            print(data["pulls"][-1])
    options.out.write_text(_text(data))


if __name__ == "__main__":
    main()
