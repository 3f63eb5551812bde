"""NVIDIA's own tools as an oracle: on the PATH, or Debian's packages unpacked with `dpkg -x` under AISP_ORACLE_ROOT."""

import csv
import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
_PLACES = {"nsys": "usr/lib/nsight-systems/bin/nsys", "ncu": "usr/lib/nsight-compute/ncu"}


def tool(name: str) -> str:
    root = os.environ.get("AISP_ORACLE_ROOT")
    found = str(Path(root) / _PLACES[name]) if root else shutil.which(name)
    if not found or not Path(found).exists():
        pytest.skip(f"{name} is not here: put it on the PATH, or set AISP_ORACLE_ROOT to an unpacked Debian package")
    return found


def stats(database: Path, report: str) -> list[dict[str, str]]:
    """`nsys stats` for one report, as rows."""
    done = subprocess.run(
        [tool("nsys"), "stats", "--report", report, "--format", "csv", "--output", "-", str(database)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.count(",") > 3)
    return list(csv.DictReader(lines[first:]))


def unpack(name: str, folder: Path) -> Path:
    """A committed capture, decompressed into folder."""
    target = folder / name.removesuffix(".gz")
    target.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    return target
