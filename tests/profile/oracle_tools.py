"""NVIDIA's own tools as an oracle: on the PATH, or Debian's packages unpacked with `dpkg -x` under AISP_ORACLE_ROOT."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
NSYS_CAPTURES = sorted(path.name for path in DATA.glob("*.nsys.sqlite.gz"))
_PLACES = {"nsys": "usr/lib/nsight-systems/bin/nsys", "ncu": "usr/lib/nsight-compute/ncu"}


def tool(name: str) -> str:
    root = os.environ.get("AISP_ORACLE_ROOT")
    program = str(Path(root) / _PLACES[name]) if root else shutil.which(name)
    if not program or not Path(program).exists():
        pytest.skip(f"{name} is not here: put it on the PATH, or set AISP_ORACLE_ROOT to an unpacked Debian package")
    return program


def recorded(capture: str) -> dict[str, list[dict[str, str]]]:
    """Tables that `nsys stats` printed of a committed capture, kept beside it."""
    beside = DATA / capture.replace(".nsys.sqlite.gz", ".nsys-stats.json.gz")
    answer: dict[str, list[dict[str, str]]] = json.loads(gzip.decompress(beside.read_bytes()))
    return answer


def unpack(name: str, folder: Path) -> Path:
    """A committed capture, decompressed into folder."""
    target = folder / name.removesuffix(".gz")
    target.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    return target
