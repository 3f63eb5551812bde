"""The walkthroughs, followed to the letter: every file written, every command run, in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"^`([\w./-]+)`:\n\n```\w*\n(.*?)^```$|^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def steps(page: str) -> list[tuple[str, str, str]]:
    """(file, its text, "") or ("", "", commands), in the order of the page."""
    return STEP.findall((ROOT / "docs" / page).read_text("utf-8"))


def follow(page: str, folder: Path, home: Path) -> str:
    """Everything that the commands print."""
    script = ["set -e"]
    for name, text, commands in steps(page):
        script.append(commands or f"mkdir -p $(dirname {name}); cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "AISP_HOME": str(home),
    }
    words = ["bash", "-c", "\n".join(script)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_walkthroughs_have_files_and_commands_in_order() -> None:
    for page in ("walkthrough-optimise.md", "walkthrough-audit.md", "walkthrough-keep.md"):
        all_steps = steps(page)
        assert sum(bool(name) for name, _, _ in all_steps) >= 2
        assert sum(commands.count("aisp ") for _, _, commands in all_steps) >= 5


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_agents_best_is_confirmed_and_travels(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks")
    output = follow("walkthrough-optimise.md", folder, tmp_path / "home")
    assert "incorrect: " in output
    assert "Candidate 1 was measured again and confirmed" in output or "No candidate was confirmed" in output
    assert re.search(r"passed +yes\nkind +optimization", output)
    assert (folder / "claim.aisp.tar").is_file()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_claimed_speedup_is_refused_and_an_honest_one_measured_again(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    output = follow("walkthrough-audit.md", folder, tmp_path / "home")
    assert re.search(r"sums:rows\s+wrong|wrong\s.*incorrect", output)
    assert output.count("incorrect: ") >= 2
    assert "error BUNDLE_ALTERED" in output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_keeps_what_helps_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.mkdir()
    output = follow("walkthrough-keep.md", folder, tmp_path / "home")
    assert "keep: cpu" in output
    assert output.count("discard: cpu") == 2
    assert "not different == 256" in output
    assert "broken: The candidate ended with 1: no" in output
