"""A .ncu-rep on a machine without the ncu program is read by a script of ours, which must be where it is looked for."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.process.run import run
from aisp_mcp.profile.recording import commands


def test_the_script_that_imports_ncu_report_starts(tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(b"not a report")
    done = run(commands.ncu_module(report), timeout_s=60)
    assert not done.ok
    assert "ncu_report" in done.stderr, done.stderr
