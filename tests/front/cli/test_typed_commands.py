"""The commands of similar tools' documents, as typed: each is answered, or refused with what to type instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.front.cli import arguments, commands
from aisp_mcp.front.cli.main import main
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.server.registry import get
from aisp_mcp.settings import Settings

TYPED = (Path(__file__).parent / "typed_commands.txt").read_text().splitlines()
MISREAD = ("UNKNOWN_COMMAND", "BAD_COMMAND_LINE", "INTERNAL", "Traceback")


@pytest.fixture(autouse=True)
def catalog(home: Path, demo_tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_catalog(Settings.from_env())


def test_every_typed_command_is_answered_or_says_what_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    for line in TYPED:
        words = shlex.split(line)
        try:
            dry = ["--dry-run"] if commands.find(words)[0].job is not None else []
        except AispError:
            dry = []
        code = main([*words[:2], *dry, *words[2:]])
        said = capfd.readouterr()
        if code == 0:
            assert said.out, line
            continue
        assert not any(word in said.err for word in MISREAD), (line, said.err)
        hints = re.sub(r"All options: .*", "", said.err.partition("hint: ")[2] or said.err.partition("try: ")[2])
        assert hints.strip() or "is required" in said.err, (line, said.err)


@pytest.mark.parametrize(
    ("tool", "line", "raw"),
    [
        ("aisp_profile_nsys", "python train.py --batch 32", {"command": ["python", "train.py", "--batch", "32"]}),
        ("aisp_profile_nsys", "--preset full ./a --json", {"preset": "full", "command": ["./a", "--json"]}),
        ("aisp_profile_torch", "train.py --batch 32", {"script": "train.py", "args": ["--batch", "32"]}),
        ("aisp_profile_torch", "train.py --args --batch 4", {"script": "train.py", "args": ["--batch", "4"]}),
        ("aisp_profile_torch", "--script t.py --args --batch 4", {"script": "t.py", "args": ["--batch", "4"]}),
        ("aisp_profile_torch", "--target ch07:row_sum --mode flops", {"target": "ch07:row_sum", "mode": "flops"}),
        ("aisp_ask", "why is my kernel slow", {"query": "why is my kernel slow"}),
        ("aisp_explain", "bank conflict", {"query": "bank conflict"}),
        ("aisp_profile_nsys", "-- python a.py --x", {"command": ["python", "a.py", "--x"]}),
    ],
)
def test_what_follows_the_program_is_its_own(tool: str, line: str, raw: dict[str, object]) -> None:
    assert arguments.parse(get(tool), line.split())[0] == raw


def test_errors_name_what_is_typed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "runs", "--lmit", "3"]) == 2
    assert main(["profile", "roofline"]) == 2
    assert capfd.readouterr().err.splitlines() == [
        "error UNKNOWN_ARGUMENT: aisp bench runs has no option --lmit.",
        "hint: Did you mean --limit? All options: aisp bench runs --help",
        "try: aisp bench runs --limit 3",
        "error NO_PROFILE: Give a profile or a run.",
        "hint: --profile 'report.raw.csv', or --run-id 'j_…'.",
    ]
