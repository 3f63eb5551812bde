"""Judge ten pairs of commands beside hyperfine, in the same run and on the same core.

python validation/run_command_ratios.py OUT.json [--preset default] [--only NAME]

Needs hyperfine, and the commands of the pairs. Both measure without a shell. hyperfine runs before and after the
verdict, 20 times each command, on files that the same program makes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aisp_mcp.judge import placement
from aisp_mcp.validity import corpus

MAKE = """
import gzip, lzma, random, sys
draw = random.Random(sys.argv[1])
text = "".join(f"{draw.randrange(10**9)}\\n" for _ in range(150_000)).encode()
for name, data in (("n", text), ("n.gz", gzip.compress(text, 6)), ("n.xz", lzma.compress(text, preset=1))):
    open(f"{sys.argv[2]}/{name}", "wb").write(data)
"""
PYTHON = sys.executable
SUM = "print(sum(map(int, open('{input}/n'))))"
PAIRS = {
    "sleep": ("sleep 0.2", "sleep 0.1"),
    "sleep_short": ("sleep 0.02", "sleep 0.01"),
    "decompress": ("xz -dc {input}/n.xz", "gzip -dc {input}/n.gz"),
    "sort": ("sort -g {input}/n", "sort -n {input}/n"),
    "count_lines": ("awk 'END{print NR}' {input}/n", "sed -n '$=' {input}/n"),
    "count_sevens": ("grep -c -E '(7|77).*7$' {input}/n", "grep -c 7.*7$ {input}/n"),
    "sum": (f'{PYTHON} -S -c "{SUM}"', "awk '{s+=$1}END{printf \"%.0f\\n\",s}' {input}/n"),
    "start": (f"{PYTHON} -c pass", f"{PYTHON} -S -c pass"),
    "imports": (f'{PYTHON} -c "import asyncio"', f'{PYTHON} -c "import json"'),
    "squares": (
        f'{PYTHON} -S -c "print(sum(i * i % 7 for i in range(700000)) > 0)"',
        f'{PYTHON} -S -c "print(sum(i * i % 7 for i in range(350000)) > 0)"',
    ),
}


def seconds(pair: tuple[str, str], folder: Path, cpu: int) -> list[float]:
    """Median seconds of both commands, by hyperfine."""
    words = [command.replace("{input}", str(folder)) for command in pair]
    out = folder / "hyperfine.json"
    argv = ["hyperfine", "-N", "--warmup", "2", "--runs", "20", "--export-json", str(out), "--", *words]
    subprocess.run(["taskset", "-c", str(cpu), *argv], check=True, capture_output=True)
    return [row["median"] for row in json.loads(out.read_text())["results"]]


def judged(name: str, preset: str, cpu: int) -> dict[str, Any]:
    """One pair as a row."""
    pair = PAIRS[name]
    with tempfile.TemporaryDirectory() as place:
        folder, make = Path(place), Path(place, "make.py")
        make.write_text(MAKE)
        subprocess.run([PYTHON, str(make), "1", place], check=True)
        before, load, begin = seconds(pair, folder, cpu), os.getloadavg()[0], time.monotonic()
        argv = [PYTHON, "-m", "aisp_mcp.front.cli.main", "bench", "commands", *pair, "--make", str(make), "--json"]
        done = subprocess.run([*argv, "--preset", preset], capture_output=True, text=True, check=False)
        row: dict[str, Any] = {"name": name, "load": load, "seconds": time.monotonic() - begin}
        after = seconds(pair, folder, cpu)
    truths = [slow / fast for slow, fast in (before, after)]
    row |= {"hyperfine": math.sqrt(math.prod(truths)), "hyperfine_twice": truths, "candidate_s": after[1]}
    try:
        answer = json.loads(done.stdout)["result"]
    except (ValueError, KeyError):
        return row | {"error": (done.stdout + done.stderr)[-400:]}
    return row | {key: answer[key] for key in ("verdict", "ratio", "interval", "noise_floor", "sentence")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    if not shutil.which("hyperfine"):
        parser.error("hyperfine is not installed")
    rows, cpu = list[dict[str, Any]](), max(placement.measuring_cpus())
    for name in options.only or PAIRS:
        rows.append(judged(name, options.preset, cpu))
        print(json.dumps(rows[-1]), flush=True)
        apart = [abs(row["ratio"] / row["hyperfine"] - 1) for row in rows if row.get("ratio")]
        summary = {
            "rows": len(rows),
            "within 2 %": sum(one <= 0.02 for one in apart),
            "median error": statistics.median(apart) if apart else None,
        }
        what = "pairs of commands beside hyperfine, on a CPU"
        corpus.keep(options.out, corpus.recorded(rows, "cpu", options.preset) | {"what": what, "summary": summary})
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
