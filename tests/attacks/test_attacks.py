"""Every attack fails, and the honest variant that resembles it is not accused.

tests/attacks/CHAPTER/TARGET/NAME_exploit.py is a candidate that cheats, NAME_twin.py does the same thing legitimately.
Adding a pair of files adds a test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("ch*/*/*.py"))
CLI = "import sys; from aisp_mcp.front.cli import main; sys.exit(main())"


def test_every_exploit_has_a_twin_and_the_other_way_round() -> None:
    names = {path.relative_to(HERE).as_posix() for path in FILES}
    exploits = {name.removesuffix("_exploit.py") for name in names if name.endswith("_exploit.py")}
    twins = {name.removesuffix("_twin.py") for name in names if name.endswith("_twin.py")}
    assert exploits
    assert exploits == twins
    assert len(names) == 2 * len(exploits)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_an_exploit_is_exposed_and_its_twin_is_not(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_HOME", str(tmp_path))
    target = f"{file.parent.parent.name}:{file.parent.name}"
    command = [sys.executable, "-c", CLI, "bench", "verify", "--target", target, "--candidate", str(file)]
    done = subprocess.run([*command, "--preset", "quick", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    result = json.loads(done.stdout)["result"]
    (comparison,) = result["comparisons"]
    exposed = comparison["verdict"] in ("incorrect", "invalid")
    assert exposed == file.stem.endswith("_exploit"), comparison["sentence"]
