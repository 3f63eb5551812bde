"""docs/contracts.md: its files, as they stand on the page, are right, and its commands judge them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agreement import Agreement

from aisp_mcp.suites import discovery as suites

PAGE = Path(__file__).resolve().parents[2] / "docs/contracts.md"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```bash\naisp (.*?)\n```$", re.MULTILINE)
SIX = ["row_norm", "row_norm_loop_cpp", "commands", "tiny_training", "gated_layer", "narrow_layer"]

pytestmark = pytest.mark.torch


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    """The page's files in an empty folder."""
    for name, text in FILE.findall(PAGE.read_text("utf-8")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def aisp(root: Path, line: str) -> dict[str, object]:
    """The result of a command of the page."""
    argv = [str(Path(sys.executable).with_name("aisp")), *shlex.split(line), "--json"]
    env = {**os.environ, "AISP_HOME": str(root / "home")}
    env.pop("AISP_BENCH_ROOT", None)
    done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3, 4), done.stdout[-500:] + done.stderr[-500:]
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_page_has_an_example_of_each_contract() -> None:
    commands = COMMAND.findall(PAGE.read_text("utf-8"))
    assert len(commands) == len(SIX)
    assert all(name in command for name, command in zip(SIX, commands, strict=True))


def test_the_pairs_on_the_page_agree(guide: Path) -> None:
    targets = suites.find_targets(guide / "benchmarks")
    assert sorted(target.name.partition(":")[2] for target in targets) == [
        "gated_layer", "narrow_layer", "row_norm", "tiny_training"
    ]  # fmt: skip
    assert not [target for target in targets if target.problem or any(v.problem for v in target.variants)]
    compiles = shutil.which("g++")
    for target in targets:
        agreement = Agreement(target)
        for variant in target.variants:
            if compiles or not variant.path.endswith(".cpp"):
                assert list(agreement.problems(variant)) == [], variant.path


def test_the_programs_on_the_page_are_judged(guide: Path) -> None:
    (line,) = [line for line in COMMAND.findall(PAGE.read_text("utf-8")) if line.startswith("bench commands")]
    text = json.dumps(aisp(guide, line))
    assert re.search(r'"verdict": ?"(same|faster|slower|inconclusive)"', text)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SIX if name != "commands"])
def test_the_judge_accepts_the_pairs_on_the_page(guide: Path, name: str) -> None:
    if name.endswith("cpp") and not shutil.which("g++"):
        pytest.skip("there is no C++ compiler")
    (line,) = [line for line in COMMAND.findall(PAGE.read_text("utf-8")) if f"guide:{name} " in line]
    text = json.dumps(aisp(guide, line))
    assert re.search(r'"verdict": ?"(same|faster|slower|inconclusive)"', text), text[-2000:]
