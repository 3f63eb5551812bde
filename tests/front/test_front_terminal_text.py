"""Names of files and words of programs do not steer the terminal they are shown on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import forks
import pytest
from front_support import Cli

from aisp_mcp.front import terminal_text

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
BASELINE = """
from aisp_mcp.bench import Benchmark, Work


class Sum(Benchmark):
    def inputs(self, rng):
        return {"a": rng.randn(8)}

    def work(self):
        return Work(flops=8, bytes=32, items=8)

    def run(self, a):
        return a.sum()
"""


@pytest.fixture
def suites(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "suites" / "ch01"
    folder.mkdir(parents=True)
    (folder / f"baseline_sum{EVIL}.py").write_text(BASELINE)
    (folder / f"optimized_sum{EVIL}.py").write_text(f'"""Quick{EVIL}."""\n\ndef run(a):\n    return a.sum()\n')
    monkeypatch.setenv("AISP_BENCH_ROOT", str(folder.parent))
    return folder


@pytest.mark.parametrize(
    "words", [("bench", "list-targets"), ("bench", "list-targets", "--json"), ("bench", "list-targets", EVIL)]
)
def test_what_reaches_the_terminal_steers_nothing(suites: Path, cli_here: Cli, words: tuple[str, ...]) -> None:
    done = cli_here(*words)
    output = done.stdout + done.stderr
    assert "sum" in output or EVIL in words
    assert not STEERS.findall(output)
    if "--json" in words:
        assert json.loads(done.stdout)["status"] == "ok"


def test_json_means_the_same_and_text_shows_what_was_there() -> None:
    document = json.dumps({"name": EVIL}, ensure_ascii=False)
    assert json.loads(terminal_text.escape_json(document)) == {"name": EVIL}
    assert not STEERS.findall(terminal_text.escape_json(document))
    assert terminal_text.escape("a\x1b[2J\nb\x9b\u202e") == "a\u241b[2J\nb<U+009B><U+202E>"
    assert terminal_text.escape_tree({"a\x07": ["\x7f", 1]}) == {"a\u2407": ["\u2421", 1]}


def test_a_user_without_a_home_folder_is_told_what_to_set(tmp_path: Path) -> None:
    """A container may run as a user that it does not know."""
    program = "import os, sys\nos.getuid = lambda: 987654\nfrom aisp_mcp.front.cli.main import main\nsys.exit(main())"
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "AISP_HOME", "XDG_DATA_HOME")}

    def say(**more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", program, "job", "list"]
        return forks.run(argv, env={**env, **more}, cwd=tmp_path, capture_output=True, text=True)

    refused = say()
    assert refused.returncode == 2
    assert refused.stderr.startswith("error NO_HOME: User 987654 has no home folder")
    assert list(tmp_path.iterdir()) == []
    assert say(AISP_HOME=str(tmp_path / "home")).returncode == 0


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_home_that_cannot_be_is_no_bug(tmp_path: Path, home: Path, cli: Cli, kind: str) -> None:
    if kind == "file":
        home.touch()
    else:
        home.symlink_to(tmp_path / "nowhere")
    for words in (("job", "list"), ("demo", "count")):
        done = cli(*words)
        assert (done.returncode, "STORE_UNWRITABLE" in done.stderr, "INTERNAL" in done.stderr) == (1, True, False)
