"""The command line as a person meets it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front_support import Cli

from aisp_mcp import __version__
from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import UsageError
from aisp_mcp.front.cli import arguments, commands, format, render, run
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, to_data
from aisp_mcp.server.registry import get
from aisp_mcp.settings import Settings


def test_overview_group_and_command_help(demo_tools: None, cli_here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_TOOL_MODULES", "front_tools")
    assert cli_here("--version").stdout == f"{__version__}\n"
    assert "aisp demo echo" in cli_here("--help").stdout
    group = cli_here("demo").stdout
    assert "aisp demo echo" in group
    assert "aisp suggest" not in group
    page = cli_here("demo", "echo", "--help").stdout
    for words in ("A second paragraph", "--count N", "How many. [from 1, to 9, required]", "aisp_demo_echo",
                  "--loud, --no-loud", "[plain | fancy, default plain]", "aisp demo numbers"):  # fmt: skip
        assert words in page


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["demo", "ecko"], "Did you mean: aisp demo echo?"),
        (["dmeo", "echo"], "Did you mean: aisp demo echo?"),
        (["dmo"], "Did you mean: aisp demo?"),
        (["demo", "--count", "1"], "aisp demo --help"),
        (["--no-such"], "aisp --help"),
    ],
)
def test_a_mistyped_command_is_a_usage_error_with_the_right_one(
    demo_tools: None, cli_here: Cli, argv: list[str], words: str
) -> None:
    done = cli_here(*argv)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["demo", "echo", "1"], 0),
        (["demo", "boom"], 1),
        (["demo", "refuse"], 1),
        (["demo", "echo", "--count", "x"], 2),
        (["demo", "echo"], 2),
        (["demo", "echo", "1", "--cuont", "1"], 2),
        (["demo", "echo", "1", "2", "3"], 2),
        (["demo", "judge", "--passed"], 0),
        (["demo", "judge", "--no-passed"], 3),
        (["demo", "judge"], 4),
    ],
)
def test_exit_codes(demo_tools: None, cli_here: Cli, argv: list[str], code: int) -> None:
    """As people call it; with --json the code is that of the same call, see test_front_same_envelope.py."""
    assert cli_here(*argv).returncode == code


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["demo", "echo", "1", "2", "3"], 2),  # words that make no call: there is none to compare with
        (["demo", "judge", "--passed"], 0),
    ],
)
def test_exit_codes_beside_an_envelope(cli: Cli, argv: list[str], code: int) -> None:
    assert cli(*argv, "--json").returncode == code


def test_a_wrong_argument_that_a_job_finds_is_a_usage_error_too(ctx: Context) -> None:
    """The class of an error outlives the job's process, and is not part of what is shown."""
    failed = failure("aisp_demo_echo", UsageError("NO_SHAPES", "None."), Stopwatch(ctx)).model_dump_json()
    answer = Envelope.model_validate_json(failed)
    assert run.exit_code(get("aisp_demo_echo"), answer) == 2
    assert "kind" not in to_data(answer)["error"]


def test_an_error_goes_to_standard_error_with_the_next_call_as_a_line(demo_tools: None, cli_here: Cli) -> None:
    done = cli_here("demo", "refuse")
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error NO_GPU: There is no GPU.",
        "hint: Put one in.",
        "try: aisp demo echo 1",
        "try: aisp demo numbers",
    ]


def test_a_tool_that_prints_does_not_spoil_the_answer(cli: Cli) -> None:
    done = cli("demo", "print", "--json")
    assert json.loads(done.stdout)["result"] == {"said": {"printed": True}}
    for stray in ("stray words", "stray bytes", "stray child"):
        assert stray in done.stderr


def test_a_reader_that_leaves_early_is_no_error(home: Path) -> None:
    command = f"{sys.executable} -m aisp_mcp.front.cli.main demo big --items 120 --text 100"
    line = f"{command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=50, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_records_become_tables_and_names_with_values(demo_tools: None, cli_here: Cli) -> None:
    lines = cli_here("demo", "big", "--items", "3").stdout.splitlines()
    assert lines[0].split() == ["rows"]
    assert lines[1].split()[:1] == ["name"]
    assert lines[2].split()[:2] == ["row", "0"]
    numbers = cli_here("demo", "numbers").stdout
    assert "good" in numbers
    assert "not finite: ratio, series[1], series[2]" in numbers


def test_a_verdict_is_one_line(demo_tools: None, cli_here: Cli) -> None:
    assert cli_here("demo", "judge", "--passed").stdout.splitlines()[0] == "The candidate is faster."


@pytest.mark.usefixtures("demo_tools")
class TestWords:
    """From words to raw arguments and back."""

    @pytest.mark.parametrize(
        ("argv", "raw"),
        [
            (["--count", "3"], {"count": 3}),
            (["3"], {"count": 3}),
            (["--count=3", "--loud"], {"count": 3, "loud": True}),
            (["--no-loud"], {"loud": False}),
            (["--names", "a", "b"], {"names": ["a", "b"]}),
            (["--names", "a,b", "c"], {"names": ["a", "b", "c"]}),
            (["--names", '["a,b"]'], {"names": ["a,b"]}),
            (["--ratio", "0.5"], {"ratio": 0.5}),
            (["--either", "7"], {"either": 7}),
            (["--either", "x", "y"], {"either": ["x", "y"]}),
            (["--count", "three"], {"count": "three"}),
            (["--zzz", "5"], {"zzz": 5}),
            (["--zzz"], {"zzz": True}),
            (["--count", "1", "--zz-top=q"], {"count": 1, "zz_top": "q"}),
        ],
    )
    def test_words_become_typed_values(self, argv: list[str], raw: dict[str, object]) -> None:
        assert arguments.parse(get("aisp_demo_echo"), argv)[0] == raw

    def test_words_that_fit_nowhere_are_refused(self) -> None:
        with pytest.raises(UsageError, match="Unexpected: 4 5"):
            arguments.parse(get("aisp_demo_echo"), ["3", "4", "5"])

    def test_words_after_two_dashes_are_taken_as_they_are(self) -> None:
        assert arguments.parse(get("aisp_suggest_tools"), ["--", "--gpu, fast?"])[0] == {"query": "--gpu, fast?"}

    @pytest.mark.parametrize(
        "words",
        ["p.py mine.py --set N=8 M=[4,4]", "--set N=8 M=[4,4] p.py mine.py", "p.py --set N=8 mine.py --set M=[4,4]"],
    )
    def test_one_option_takes_several_pairs(self, words: str) -> None:
        values = {"target": "p.py", "candidate": "mine.py", "set": {"N": 8, "M": [4, 4]}}
        assert arguments.parse(get("aisp_verify_candidate"), words.split())[0] == values

    @pytest.mark.parametrize(
        "args",
        [
            {"count": 3},
            {"count": 3, "names": ["a b", "c"], "loud": True, "ratio": 0.5},
            {"count": 1, "names": ["it's"], "loud": False, "mode": "fancy"},
        ],
    )
    def test_a_call_written_as_a_line_is_read_back(self, args: dict[str, object]) -> None:
        import shlex

        words = shlex.split(commands.command_line("aisp_demo_echo", args))
        tool, rest = commands.find(words[1:])
        assert tool.name == "aisp_demo_echo"
        assert arguments.parse(tool, rest)[0] == args


@pytest.mark.parametrize(
    ("name", "item", "text"),
    [
        ("time_s", 0.00123, "1.23 ms"),
        ("time_s", 300, "5 min"),
        ("wait_ms", 1500, "1.5 s"),
        ("size_bytes", 1536, "1.5 KiB"),
        ("rate_bytes_per_s", 2.5e12, "2.5 TB/s"),
        ("flops_per_s", 1e15, "1 PFLOP/s"),
        ("power_w", 699.6, "699.6 W"),
        ("ratio", 1.23456, "1.235×"),
        ("noise_floor", 0.0123, "1.23 %"),
        ("count", 12345678, "12,345,678"),
        ("passed", True, "yes"),
        ("nothing", None, "–"),
        ("ended_at", 1795252157.6, "2026-11-21 09:09:17Z"),
        ("interval", {"low": 1.0, "high": 2.0}, "[1, 2]"),
        ("names", ["a", "b"], "a, b"),
    ],
)
def test_values_have_the_unit_their_name_ends_in(name: str, item: object, text: str) -> None:
    assert format.value(name, item) == text


def test_the_overview_lists_every_tool_of_the_catalogue_and_imports_none() -> None:
    script = "import sys; from aisp_mcp.front.cli.main import main; main(['--help']); print('pydantic' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "AISP_TOOL_MODULES"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    *lines, imported = done.stdout.splitlines()
    load_catalog(dataclasses.replace(Settings.from_env(), tool_modules=""))
    shipped = [tool for tool in registry.tools() if tool.fn.__module__.startswith("aisp_mcp.")]
    assert imported == "False"
    for tool in shipped:
        row = (f"  aisp {tool.cli} ", f"  {tool.summary}")
        assert any(line.startswith(row[0]) and line.endswith(row[1]) for line in lines), tool.cli
    assert sum(line.startswith("  aisp ") for line in lines) == len(shipped)


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("profile torch", "aisp profile torch [options] [SCRIPT [ITS OPTIONS ...]]"),
        ("bench verify", "aisp bench verify TARGET CANDIDATE [options]"),
        ("bench run", "aisp bench run [TARGETS ...] [options]"),
    ],
)
def test_help_begins_with_what_one_types(cli_here: Cli, words: str, usage: str) -> None:
    assert cli_here(*words.split(), "--help").stdout.splitlines()[0] == f"usage: {usage}"


def test_an_answer_opens_with_its_sentence_and_a_planner_with_its_answer(cli_here: Cli) -> None:
    assert " | memory " in cli_here("status").stdout.splitlines()[0]
    assert cli_here("triage").stdout.startswith(("No usable GPU", "1 GPU", "2 GPU", "4 GPU", "8 GPU"))
    assert cli_here("optimize", "techniques").stdout.startswith("total")
    asked = cli_here("ai", "ask", "what is a bank conflict").stdout
    assert asked.startswith("Shared memory has 32 banks of 4 bytes.")
    assert "dropped" not in asked
    assert "[1] Shared memory bank conflicts  bank-conflicts" in asked


RULING: dict[str, Any] = {
    **{"target": "slow:f", "verdict": "inconclusive", "sentence": "inconclusive: 1.01x", "ratio": 1.01},
    **{"time_s": [2e-3, 1.98e-3], "clock": "parent", "isolation": "L3", "flags": ["clock_disagreement"]},
}


def shown(capsys: pytest.CaptureFixture[str], why: bool, noise: list[str], workload: Any = None, **ruling: Any) -> str:
    """What a person reads of a run with one verdict."""
    said = {"clock_disagreement": "The clocks differ."}
    result = {"run_id": "r_1", "passed": None, "rulings": [{**RULING, **ruling}], "flags": said, "noise": noise}
    result |= {"workload": workload} if workload else {}
    meta = {"duration_ms": 1.0, "version": "0", "at": "2026-11-29T00:00:00Z"}
    render.answer(Envelope(tool="aisp_verify_candidate", status="ok", result=result, meta=meta), why)
    return " ".join(capsys.readouterr().out.split())


def test_a_verdict_is_its_sentence_and_one_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    brief = "slow:f inconclusive: 1.01x run id r_1 next repeat it with --preset release, which measures more, or with "
    assert shown(capsys, False, []) == brief + "larger inputs details add --why"
    assert "next aisp triage names" in shown(capsys, False, ["Tasks waited for a CPU."])
    lost = shown(capsys, False, ["Tasks waited for a CPU."], flags=["value_dependent"], ratio=0.51)
    assert "next keep the baseline, or let --inputs" in lost
    assert "--preset default" in shown(capsys, False, [], verdict="faster", sentence="faster", provisional=True)
    assert "next keep the candidate" in shown(capsys, False, [], verdict="faster", sentence="faster")


def test_a_workload_opens_with_its_own_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    regime = {"label": "m=64", "launches": 94, "share": 0.3, "verdict": "slower", "ratio": 0.55, "interval": None}
    workload = {"sentence": "slower: 0.8x over this workload", "verdict": "slower", "regimes": [regime]}
    text = shown(capsys, False, [], workload)
    assert text.startswith("slower: 0.8x over this workload run id r_1 next keep the baseline")
    assert "m=64 94 30.0% slower 0.55×" in text


def test_why_names_clocks_noise_and_what_was_flagged(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, True, ["Tasks waited for a CPU."])
    for part in (
        "baseline 2 ms",
        "candidate 1.98 ms",
        "timed by the parent's clock",
        "The clocks differ.",
        "Tasks waited",
    ):
        assert part in text
    assert text.count("The clocks differ.") == 1


def test_a_flag_of_the_only_verdict_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"target": "slow:f", "verdict": "slower", "sentence": "slower: 0.5x", "flags": ["clock_disagreement"]}
    said = {"clock_disagreement": "The clocks differ."}
    render.console().print(render.render({"rulings": [row], "flags": said}))
    once = "slow:f slower: 0.5x flags clock disagreement The clocks differ."
    assert " ".join(capsys.readouterr().out.split()) == once
    render.console().print(render.render({"rulings": [row, {**row, "flags": []}], "flags": said}))
    assert "clock_disagreement" in capsys.readouterr().out
