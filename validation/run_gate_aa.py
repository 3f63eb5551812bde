"""Hold the gate for pull requests to its promise: no false failures, and slowdowns found as far as it says it can.

python validation/run_gate_aa.py record OUT.json --runs 30 [--slower 0.05]    real gates over two commits; adds to OUT
python validation/run_gate_aa.py pulls OUT.json [RECORD.json …] --pulls 30000  pull requests drawn from what is recorded

record: a repository with one small benchmark; the head is the base commit itself, or one whose library computes that
much more. pulls: each pull request has five benchmarks whose noise is that of A/A comparisons recorded on one machine,
by the gate or by tools/calibrate.py; a slowdown is planted by shifting ratio and interval, which changes nothing else
that the verdict rests on, or by shifting some processes. Judged by the gate's own policy, further looks included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from aisp_mcp.gate.policy import BROKEN, OUTCOMES, Look, judge_looks, needs_look
from aisp_mcp.gate.records import Outcome
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.statistics import MeanInterval, t_quantile
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
NUMBERS, BENCHMARKS, PROCESSES = 16000, 5, 5
T_HALF = t_quantile(0.975, PROCESSES - 1) / math.sqrt(PROCESSES)  # half of a 95 % interval over the standard deviation


def planted() -> list[Planted]:
    """Heads to simulate: equal ones, slower ones, and those that are slower in some of their processes alone."""
    return [*map(Planted, (0.0, 0.02, 0.05, 0.10)), *(Planted(0.7, share) for share in (0.2, 0.4, 0.6, 0.8))]


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


@dataclass(frozen=True)
class Planted:
    """A head that takes `slower` more in a share of its processes."""

    slower: float
    share: float = 1.0


def drawn(row: dict[str, Any], planted: Planted, draw: random.Random) -> Look:
    """The look that a recorded A/A comparison would have been, had the head been slower.

    The ratios of its processes are not recorded: they are drawn as normal, and moved to the recorded mean and scatter.
    """
    verdict = Verdict(row["verdict"])
    if row["ratio"] is None or verdict in BROKEN or _bounded(row):
        return Look(verdict if verdict in BROKEN else Verdict.INCONCLUSIVE, 0.0, 0.0, 0.0, 0.0, PROCESSES, usable=False)
    mean, low, high = (math.log(row[name]) for name in ("ratio", "low", "high"))
    shift, half = math.log1p(planted.slower), (high - low) / 2
    if planted.share < 1.0:
        mean, half = _mixed(mean, half / T_HALF, shift, planted.share, draw)
    else:
        mean -= shift
    floor, margin = math.log1p(row["noise_floor"]), row["margin"]
    estimate = MeanInterval(mean, mean - half, mean + half, 0.95, 0.0, PROCESSES)
    judged = word(Numbers(estimate, floor, margin, margin <= WIDEST_SAME))[0]
    return Look(judged, mean, mean - half, mean + half, floor, PROCESSES)


def _mixed(mean: float, spread: float, shift: float, share: float, draw: random.Random) -> tuple[float, float]:
    """(mean, half of the interval) of five processes, some of which are slower."""
    normal = [draw.gauss(0.0, 1.0) for _ in range(PROCESSES)]
    centre, scale = fmean(normal), stdev(normal)
    ratios = [mean + spread * (one - centre) / scale - shift * (draw.random() < share) for one in normal]
    return fmean(ratios), stdev(ratios) * T_HALF


def _bounded(row: dict[str, Any]) -> bool:
    """True where the ratio is a lower bound of a gain. calibrate.py has the clock alone, older records its old name."""
    used = row["clocks"]["used"] if "clocks" in row else row["clock"]
    return used in ("lower_bound", "proven")


def gated(rows: list[dict[str, Any]], planted: Planted, margin: float, draw: random.Random) -> tuple[Outcome, int]:
    """(outcome, looks) of one benchmark; every look has the noise of a row of its own."""
    looks = [drawn(draw.choice(rows), planted, draw)]
    while needs_look(looks, margin):
        looks.append(drawn(draw.choice(rows), planted, draw))
    if any(look.verdict in BROKEN for look in looks):
        return "wrong", len(looks)
    if looks[0].verdict is Verdict.SLOWER or len(looks) > 1:
        return judge_looks(looks, margin)[0], len(looks)
    return OUTCOMES[looks[0].verdict], 1


def pulls(rows: list[dict[str, Any]], count: int, planted: Planted) -> dict[str, Any]:
    """Pull requests of five benchmarks, each of which is slower as planted, at the default margin."""
    draw = random.Random(f"{planted} {len(rows)}")
    outcomes, further, failed = Counter[Outcome](), 0, 0
    for _ in range(count):
        results = [gated(rows, planted, MIN_MARGIN, draw) for _ in range(BENCHMARKS)]
        outcomes.update(outcome for outcome, _ in results)
        further += sum(looks - 1 for _, looks in results)
        failed += any(outcome == "regressed" for outcome, _ in results)
    total = count * BENCHMARKS
    return {
        "slower": planted.slower,
        "share": planted.share,
        "pulls": count,
        "failed": failed,
        "found": round(outcomes["regressed"] / total, 5),
        "unchanged": round(outcomes["unchanged"] / total, 5),
        "not_judged": round(outcomes["could_not_judge"] / total, 5),
        "further_looks": round(further / total, 4),
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
        for head in planted():
            count = options.pulls if not head.slower else options.pulls // 10
            data["pulls"].append({"record": path.name, "comparisons": len(rows), **pulls(rows, count, head)})
            print(data["pulls"][-1], flush=True)
    options.out.write_text(_text(data))


if __name__ == "__main__":
    main()
