"""Files that count as a worker's memory, and those that cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aisp_mcp.judge.parent.timing.memory import accounting
from aisp_mcp.judge.parent.timing.memory.accounting import Footprint, Watch
from aisp_mcp.process import isolation

SCRIPT = """
import os, sys
from aisp_mcp.judge.parent.timing.memory.accounting import _may_hold_files
print([_may_hold_files(*os.path.split(path)) for path in sys.argv[1:]])
"""


@pytest.mark.skipif(isolation.probe().level < "L2", reason="processes have no file systems of their own here")
def test_read_only_mounts_hold_no_files_of_a_worker(tmp_path: Path) -> None:
    """An environment in a scratch folder has tens of thousands of files, all of which were looked at in every round."""
    program, own = tmp_path / "environment", tmp_path / "own"
    program.mkdir()
    own.mkdir()
    (program / "script.py").write_text(SCRIPT)
    argv = [sys.executable, str(program / "script.py"), str(program), str(own)]
    done = subprocess.run(
        isolation.wrap(argv, "L2", writable=[own]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout.strip() == "[False, True]"


@pytest.mark.parametrize(
    ("held", "added"),
    [
        ([0, 0, 0], 0),
        ([6, 10, 14, 15, 12, 4], 15 + 15 / 8),  # a rise of 6, of which an eighth of the whole counts
        ([14, 15, 15, 15], 15 + 15 / 8),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15], 16),  # all samples are close together
    ],
)
def test_what_pipes_hold_between_two_samples_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: list[float], added: float
) -> None:
    """A candidate that keeps its state in pipes was 1.05x to 1.12x in three comparisons of one process pair."""
    mib = 1 << 20
    sizes = iter([0, *held, 0])
    monkeypatch.setattr(accounting, "footprint", lambda *_: Footprint(anonymous=mib, held=round(next(sizes) * mib)))
    watch = Watch(frozenset(), tmp_path)
    watch.rest = mib
    watch.begin([])
    for _ in held:
        watch.sample([])
    watch.end([])
    assert watch.added == pytest.approx(added * mib)
