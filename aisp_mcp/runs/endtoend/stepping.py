"""Repeat one step of the user's in a process of its own, and write down the seconds of each.

    python stepping.py FILE NAME STEPS ANSWER

It imports nothing but the standard library and the file. Work on a GPU is waited for.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 3  # steps that compile, allocate and fill caches
TRIED_S = 1.0  # that all steps take together, if their number is left open
FEWEST, MOST = 5, 200


def main() -> None:
    file, name, wanted, answer = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    sys.path[0] = str(file.parent)
    step = getattr(importlib.import_module(file.stem), name)
    last_s = [_timed(step) for _ in range(WARM_UP)][-1]
    steps = wanted or min(max(int(TRIED_S / max(last_s, 1e-6)), FEWEST), MOST)
    before = _counts()
    seconds = [_timed(step) for _ in range(steps)]
    counted = [after - begin for begin, after in zip(before, _counts(), strict=True)]
    with open(answer, "w", encoding="utf-8") as out:
        json.dump({"steps_s": seconds, "calls": counted[0], "calls_s": counted[1]}, out)


def _timed(step: Any) -> float:
    begin = time.perf_counter()
    step()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _counts() -> tuple[float, float]:
    """Calls so far and their seconds, if this process counts them."""
    with open(os.environ["AISP_SWAP"], encoding="utf-8") as file:
        folder = json.load(file).get("counts")
    path = Path(folder or "", f"{os.getpid()}.calls")
    return tuple(memoryview(path.read_bytes()).cast("d")[:2]) if path.is_file() else (0.0, 0.0)  # type: ignore[return-value]


if __name__ == "__main__":
    main()
