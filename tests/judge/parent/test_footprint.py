"""Files that count as a worker's memory, and those that cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aisp_mcp.process import isolation

SCRIPT = """
import os, sys
from aisp_mcp.judge.parent.processes.footprint import _may_hold_files
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
