"""A candidate that was judged invalid is not run again until a person clears it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

EXIT_VERDICT = 3


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_invalid_candidate_runs_once(cli, home: Path, tmp_path: Path) -> None:
    candidate, copy = tmp_path / "quick_exit.py", tmp_path / "another_name.py"
    candidate.write_text("import os\n\n\ndef run(a):\n    os._exit(0)\n")
    shutil.copy(candidate, copy)

    def verify(path: Path):
        args = ("bench", "verify", "--target", "ch07:row_sum", "--candidate", str(path), "--preset", "quick", "--json")
        done = cli(*args)
        return done.returncode, json.loads(done.stdout)

    code, answer = verify(candidate)
    assert (code, answer["result"]["rulings"][0]["verdict"]) == (EXIT_VERDICT, "invalid")
    (record,) = (home / "quarantine").iterdir()
    evidence = json.loads(record.read_text())
    assert evidence["run"] == answer["result"]["run_id"]
    assert [flag["code"] for flag in evidence["flags"]] == ["candidate_crashed"]

    code, answer = verify(copy)
    assert code not in (0, EXIT_VERDICT)
    assert answer["error"]["code"] == "QUARANTINED"
    assert str(record) in answer["error"]["hint"]

    record.write_text("not json")
    assert verify(candidate)[1]["error"]["code"] == "QUARANTINED"
    record.unlink()
    assert verify(candidate)[1]["result"]["rulings"][0]["verdict"] == "invalid"
