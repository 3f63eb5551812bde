"""Other spellings of commands, targets and flags, and hints for flags of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front_support import Cli

from aisp_mcp.errors import NotFound
from aisp_mcp.front.cli import arguments, commands
from aisp_mcp.front.cli.aliases import ALIASES
from aisp_mcp.server.registry import get
from aisp_mcp.suites import names, selection
from aisp_mcp.suites.names import Wanted

SPEC = '"""Sum."""\nfrom aisp_mcp.bench import Benchmark\nclass One(Benchmark): ...\n'


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """ch01:a with the variants plain, fast and fast_lean; ch02:b; and a chapter that is called ch3."""
    for chapter, target, variants in (
        ("ch01", "a", ("", "_fast", "_fast_lean")),
        ("ch02", "b", ("",)),
        ("ch3", "c", ("",)),
    ):
        folder = tmp_path / "suites" / chapter
        folder.mkdir(parents=True)
        (folder / f"baseline_{target}.py").write_text(SPEC)
        for variant in variants:
            (folder / f"optimized_{target}{variant}.py").write_text('"""Quick."""\ndef run(): ...\n')
    return tmp_path / "suites"


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (["all"], ["ch01:a", "ch01:a_fast", "ch01:a_fast_lean", "ch02:b", "ch3:c"]),
        (["ch1"], ["ch01:a", "ch01:a_fast", "ch01:a_fast_lean"]),
        (["ch1:a_fast"], ["ch01:a_fast"]),
        (["ch3"], ["ch3:c"]),
        (["ch01.baseline_a", "ch01.optimized_a_fast"], ["ch01:a_fast"]),
        (["ch1.baseline_a", "ch1.optimized_a"], ["ch01:a"]),
        (["ch01/optimized_a_fast_lean.py"], ["ch01:a_fast_lean"]),
        (["ch01.baseline_a"], ["ch01:a", "ch01:a_fast", "ch01:a_fast_lean"]),
        (["ch01:a", "ch01:a_fast"], ["ch01:a", "ch01:a_fast", "ch01:a_fast_lean"]),
    ],
)
def test_targets_in_other_spellings(suites: Path, given: list[str], labels: list[str]) -> None:
    pairs, broken = selection.pairs(suites, given)
    assert sorted(pair.label for pair in pairs) == labels
    assert broken == []


def test_a_name_that_is_nowhere_stays_unknown(suites: Path) -> None:
    for name in ("ch9", "everything", "ch01.optimized_nothing"):
        with pytest.raises(NotFound) as caught:
            selection.pairs(suites, [name])
        assert caught.value.code == "UNKNOWN_TARGET"


def test_names_that_look_like_files_are_read_as_such() -> None:
    assert names.read(["labs/x.optimized_y_z", "ch07:row_sum"]) == [
        Wanted("labs/x:y_z", "optimized_y_z.py"), Wanted("ch07:row_sum"),
    ]  # fmt: skip


def test_a_chapter_is_listed_by_its_short_name(cli_here: Cli, suites: Path) -> None:
    done = cli_here("bench", "list-targets", "--chapter", "ch1", "--bench-root", str(suites), "--json")
    assert [target["name"] for target in json.loads(done.stdout)["result"]["targets"]] == ["ch01:a"]


@pytest.mark.usefixtures("demo_tools")
def test_every_alias_leads_to_a_command() -> None:
    for alias, command in ALIASES.items():
        tool, rest = commands.find([*alias, "--json"])
        words = tool.cli.split()
        assert (*words, *rest) == (*command, "--json")
        assert alias not in commands.by_words()


def test_an_aliased_command_runs(cli_here: Cli) -> None:
    assert json.loads(cli_here("info", "status", "--json").stdout)["tool"] == "aisp_status"
    page = cli_here("bench", "compare", "--help").stdout
    assert "aisp_run_benchmarks" in page


@pytest.mark.usefixtures("demo_tools")
@pytest.mark.parametrize(
    ("tool", "argv", "expected"),
    [
        ("aisp_analyze_whatif", ["--vram", "24", "--latency", "100"], {"vram_gb": 24.0, "latency_ms": 100.0}),
        ("aisp_run_benchmarks", ["ch07", "--timeout", "60"], {"targets": ["ch07"], "timeout_s": 60.0}),
        ("aisp_hw_disk", ["--size", "64"], {"size_mb": 64}),
    ],
)
def test_a_flag_may_leave_out_its_unit(tool: str, argv: list[str], expected: dict[str, Any]) -> None:
    assert arguments.parse(get(tool), argv)[0] == expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--iterations", "20"], "did you mean 'replicates'"),
        (["--warmup", "5"], "rounds begin when the calls have become steady"),
        (["--reproducible"], "from a secret seed"),
    ],
)
def test_flags_of_other_tools_get_the_one_that_is_meant(cli_here: Cli, flags: list[str], words: str) -> None:
    done = cli_here("bench", "run", "ch07", *flags, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "UNKNOWN_ARGUMENT"
    assert words in error["hint"]


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["run"], "NO_TARGETS", 2),
        (["run", "ch01", "--size", "rows"], "BAD_SIZES", 2),
        (["run", "ch01:b"], "UNKNOWN_TARGET", 1),
        (["verify", "ch0*", "--candidate", "SPEC"], "ONE_TARGET", 2),
        (["verify", "ch01:b", "--candidate", "SPEC"], "UNKNOWN_TARGET", 1),
        (["verify", "ch01:a", "--candidate", "there_is_none.py"], "NO_CANDIDATE", 1),
        (["verify", "ch01:a", "--candidate", "def runn(a):\n    return a\n"], "UNREADABLE", 1),
        (["adapt", "there_is_none.py"], "NO_PROBLEM", 2),
        (["adapt", "kernelbench:there_is_none.py"], "NO_PROBLEM", 2),
        (["adapt", "SPEC", "--candidates", "there_is_none.py"], "NO_PROBLEM", 2),
        (["from-trace", "there_is_none.json"], "NO_PROFILE", 2),
        (["from-trace", "/"], "NO_PROFILE", 2),
        (["run", "--from", "kernelbench:there_is_none.py"], "NO_PROBLEM", 2),
        (["verify", "there_is_none.py", "--format", "kernelbench", "--candidate", "SPEC"], "NO_PROBLEM", 2),
        (["gate", "--base", "HEAD", "--repo", "/"], "NO_REPOSITORY", 1),
        (["gate", "--base", "no-such-commit", "--repo", str(Path(__file__).parent)], "NO_SUCH_REVISION", 1),
    ],
)
def test_a_slip_is_refused_before_a_job_starts(
    cli_here: Cli, suites: Path, tmp_path: Path, words: list[str], code: str, exit_code: int
) -> None:
    file = str(suites / "ch01" / "optimized_a.py")
    line = ["bench", *(file if word == "SPEC" else word for word in words), "--json"]
    roots = [] if words[0] in ("adapt", "from-trace") else ["--bench-root", str(suites)]
    done = cli_here(*line, *roots, "--artifacts-dir", str(tmp_path / "store"))
    error = json.loads(done.stdout)["error"]
    assert (error["code"], done.returncode) == (code, exit_code)
    assert error.get("hint") or error.get("next_steps") or exit_code == 1
    assert not list((tmp_path / "store").glob("runs/*/*"))


def test_what_is_offered_instead_confirms_nothing_unasked(cli_here: Cli) -> None:
    done = cli_here("bench", "run", "ch07", "--presett", "quick", "--json")
    error = json.loads(done.stdout)["error"]
    assert error["next_steps"] == [{"tool": "aisp_run_benchmarks", "args": {"targets": ["ch07"], "preset": "quick"}}]
    assert error["hint"].startswith("Did you mean 'preset'? Expected: targets, ")


def test_artifacts_lie_where_they_are_asked_for(cli_here: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    done = cli_here("job", "list", "--artifacts-dir", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    assert (folder / "aisp.db").is_file()


def test_the_list_names_aliases(cli_here: Cli) -> None:
    lines = [line.split() for line in cli_here("--list").stdout.splitlines()]
    assert ["aisp_system_context", "=", "aisp_context_summary"] in lines
