"""On a GPU machine: try every attack on the device and its honest twin; one JSON row per case, then a summary.

python tests/gpu/run_attacks.py [NAME...] [--seconds 540] [--device cuda] [--out FILE]
The exit code is 1 when an attack got through, a run was lost or an honest twin was accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from aisp_mcp.harness.checks import corpus


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=540.0, help="start no case after that")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, help="the rows also as a file")
    options = parser.parse_args()
    begin, found, rows = time.monotonic(), Counter[str](), []
    chosen = [corpus.named(name) for name in options.names] or corpus.cases(device=options.device)
    for case in chosen:
        if time.monotonic() - begin > options.seconds:
            found["not run"] += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = corpus.row(case, corpus.run_apart(case, Path(folder)))
        found[row["found"]] += 1
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(json.dumps({"summary": found, "seconds": round(time.monotonic() - begin, 1)}))
    if options.out:
        options.out.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return 1 if set(found) & {"through", "lost", "flagged wrongly", "not run"} else 0


if __name__ == "__main__":
    sys.exit(main())
