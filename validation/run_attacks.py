"""On a GPU machine: try every attack on the device and its honest twin; one JSON row per case, then a summary.

python validation/run_attacks.py [NAME...] [--seconds 540] [--device cuda] [--out results/h200-attacks.json]

With two GPUs the cases that need two run as well (record them as results/2xh200-attacks.json):
python validation/run_attacks.py half_on_another_device counts_the_devices another_device_selected \\
    the_declared_device_by_name --out results/2xh200-attacks.json
Cases that are named run on --device, also those for a CPU: attacks on ranks then meet NCCL.
The exit code is 1 when an attack got through, a run was lost or an honest twin was accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from aisp_mcp.judge.comparison import Options, keep_libraries_loaded
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=540.0, help="start no case after that")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--preset", choices=corpus.PRESETS, default=corpus.PRESET.name)
    parser.add_argument("--at-once", type=int, default=3, help="cases that start side by side; one is measured")
    parser.add_argument("--loaded", action="store_true", help="copy the processes of all cases from the same two")
    parser.add_argument("--out", type=Path, help="all rows as a file, with where they come from")
    options = parser.parse_args()
    named = [replace(corpus.named(name), device=options.device) for name in options.names]
    chosen = named or corpus.cases(device=options.device)
    return judged(chosen, options)


def judged(chosen: list[Case], options: argparse.Namespace) -> int:
    """One row per case, as the harness judges it."""
    begin, counts = time.monotonic(), Counter[str]()
    rows: list[dict[str, Any]] = []

    def tried(case: Case) -> dict[str, Any] | None:
        late = time.monotonic() - begin > options.seconds
        return None if late else corpus.tried(case, corpus.PRESETS[options.preset], Path(turn.name), loaded)

    with (
        tempfile.NamedTemporaryFile() as turn,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        loaded = Path(folder) if options.loaded else None
        if loaded:
            settings = Options(corpus.PRESET, "default", options.device, loaded)
            keep_libraries_loaded(settings, loaded, 2 * options.seconds)
        for row in pool.map(tried, chosen):
            counts[row["found"] if row else "not run"] += 1
            if row:
                rows.append(row)
                print(json.dumps(row), flush=True)
                corpus.keep(options.out, corpus.recorded(rows, options.device, options.preset))
    print(json.dumps({"summary": counts, "seconds": round(time.monotonic() - begin, 1)}))
    return 1 if set(counts) & (corpus.BAD | {"not run"}) else 0


if __name__ == "__main__":
    sys.exit(main())
