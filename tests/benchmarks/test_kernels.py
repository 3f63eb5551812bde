"""Kernels of shipped pairs compile for a GPU on any machine: what the interpreter accepts may still not compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOPPER = "90"


def programs() -> set[str]:
    """Shipped programs that import Triton, as FOLDER/FILE without its ending."""
    paths = [path for root in ("benchmarks", "labs") for path in (ROOT / root).glob("*/*.py")]
    return {f"{path.parent.name}/{path.stem}" for path in paths if "import triton" in path.read_text("utf-8")}


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_kernel_compiles_for_hopper(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    command = [sys.executable, str(HERE / "compiled_kernels.py"), HOPPER]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert {name.partition(":")[0] for name in counts} == programs()
    assert all(size > 0 for size in counts.values())
