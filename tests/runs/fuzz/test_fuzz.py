"""Correctness over sizes, as a user asks for it: which candidate is wrong where, and the exit code."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.bench import sizes
from aisp_mcp.bench.sizes import Sizes
from aisp_mcp.errors import UsageError
from aisp_mcp.judge.correctness import configurations
from aisp_mcp.process import tree
from aisp_mcp.runs.fuzz import fuzz

BASELINE = '''"""Halves of a matrix."""
from aisp_mcp.bench import Benchmark
class Halves(Benchmark):
    rows, columns = 8, 64
    sizes = {"small": {"rows": 8}}
    def inputs(self, rng):
        assert self.rows != 7, "seven rows are no matrix"
        return {"a": rng.randn(self.rows, self.columns)}
    def run(self, a):
        return (a / 2).contiguous()
'''
RIGHT = '"""All of it."""\ndef run(a):\n    return (a * 0.5).contiguous()\n'
WRONG = '''"""Blocks of eight rows, and nothing for the rest."""
import torch
def run(a):
    out = torch.zeros(a.shape)
    whole = len(a) // 8 * 8
    out[:whole] = a[:whole] / 2
    return out
'''
FLAT = '''"""Memory read as if rows were contiguous."""
def run(a):
    return (a.as_strided(a.shape, (a.shape[1], 1)) / 2).contiguous()
'''

ROTATED = '''"""Large angles of bfloat16 numbers: on adversarial inputs, roundings of that type excuse any angle."""
from aisp_mcp.bench import Benchmark
class Rotated(Benchmark):
    def inputs(self, rng):
        return {"x": rng.randn(64, 64, dtype="bfloat16"), "at": rng.randint(1000, 9000, 64)}
    def run(self, x, at):
        return (x.float() * (at.float() * 1.7).cos()).bfloat16()
'''
FIRST = '''"""The angles of the first call."""
first = []
def run(x, at):
    first.append(at.clone())
    return (x.float() * (first[0].float() * 1.7).cos()).bfloat16()
'''

INVERSES = '''"""Inverses, which raise for a 0: among exact inputs, some have one."""
import torch
from aisp_mcp.bench import Benchmark
class Inverses(Benchmark):
    n = 3
    def inputs(self, rng):
        return {"a": rng.randn(self.n, 1, 1, scale=1, shift=0)}
    def run(self, a):
        return torch.linalg.inv(a)
'''


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "ch01"
    folder.mkdir(parents=True)
    (folder / "baseline_halves.py").write_text(BASELINE)
    (folder / "optimized_halves.py").write_text(RIGHT)
    (folder / "optimized_halves_blocks.py").write_text(WRONG)
    (folder / "optimized_halves_flat.py").write_text(FLAT)
    return folder.parent


@pytest.mark.torch
def test_sizes_that_a_candidate_forgot_are_named_with_their_error(cli_here, suite: Path) -> None:  # type: ignore[no-untyped-def]
    words = ["--bench-root", str(suite), "--json", "--no-boundaries"]
    done = cli_here("bench", "fuzz", "ch01:halves_blocks", "--grid", "rows=8,9,7", *words)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)["result"]
    assert (report["tested"], report["passed"]) == (2, False)
    (failing,) = report["failing"]
    assert failing["sizes"] == {"rows": 9}
    assert failing["errors"][0].startswith("plain: ")
    (unusable,) = report["unusable"]
    assert "seven rows" in unusable["message"]


@pytest.mark.torch
def test_a_candidate_that_keeps_an_input_of_its_first_call_is_found(cli_here: Any, suite: Path) -> None:
    (suite / "ch01" / "baseline_rotated.py").write_text(ROTATED)
    (suite / "ch01" / "optimized_rotated.py").write_text(FIRST)
    done = cli_here("bench", "fuzz", "ch01:rotated", "--bench-root", str(suite), "--json", "--no-boundaries")
    (failing,) = json.loads(done.stdout)["result"]["failing"]
    assert failing["errors"][0].startswith(("zeros: ", "plain: "))  # zeros are inputs of few values at times, or none


@pytest.mark.torch
def test_inputs_without_an_answer_are_drawn_again(cli_here: Any, suite: Path) -> None:
    """About two seconds of processor time."""
    (suite / "ch01" / "baseline_inverses.py").write_text(INVERSES)
    (suite / "ch01" / "optimized_inverses.py").write_text("def run(a):\n    return 1 / a\n")
    words = ["--bench-root", str(suite), "--json", "--no-boundaries", "--grid", "n=5,6"]
    report = json.loads(cli_here("bench", "fuzz", "ch01:inverses", *words).stdout)["result"]
    assert (report["passed"], report["tested"], report["unusable"]) == (True, 2, [])


@pytest.mark.torch
def test_a_candidate_that_the_system_ends_for_lack_of_memory_is_not_wrong(
    cli_here: Any, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = "import os, signal\ndef run(a):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (suite / "ch01" / "optimized_halves_killed.py").write_text(killed)
    words = ["bench", "fuzz", "ch01:halves_killed", "--bench-root", str(suite), "--json", "--no-boundaries"]
    assert json.loads(cli_here(*words).stdout)["result"]["passed"] is False
    counts = itertools.count()
    monkeypatch.setattr(tree, "oom_kills", lambda: next(counts))
    error = json.loads(cli_here(*words).stdout)["error"]
    assert error["code"] == "NOTHING_TO_TEST"
    assert "Memory ran out" in error["message"]


@pytest.mark.torch
@pytest.mark.parametrize(("condition", "is_skipped"), [("True", True), ("len(a) == 9", False)])
def test_a_candidate_that_lacks_a_package_at_every_size_is_skipped(
    cli_here: Any, suite: Path, condition: str, is_skipped: bool
) -> None:
    error = "ModuleNotFoundError('No module named \\'no_such_package\\'' + ', which this program needs' * 20)"
    lacking = f"def run(a):\n    if {condition}:\n        raise {error}\n    return a / 2\n"
    (suite / "ch01" / "optimized_halves_lacking.py").write_text(lacking)
    words = ["--bench-root", str(suite), "--json", "--no-boundaries", "--grid", "rows=8,9"]
    done = cli_here("bench", "fuzz", "ch01:halves_lacking", *words)
    answer = json.loads(done.stdout)
    if is_skipped:
        assert (done.returncode, answer["error"]["code"]) == (2, "NOTHING_TO_TEST")
        assert "no candidate to test: the package no_such_package" in answer["error"]["message"]
    else:
        assert [row["sizes"] for row in answer["result"]["failing"]] == [{"rows": 9}]
        assert answer["result"]["skipped"] == []


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_right_candidate_passes_and_strides_are_tried_on_request(cli, suite: Path) -> None:  # type: ignore[no-untyped-def]
    words = ["--bench-root", str(suite), "--json", "--no-boundaries", "--strides"]
    done = cli("bench", "fuzz", "ch01:halves*", "--grid", "rows=16", *words, timeout=170)
    report = json.loads(done.stdout)["result"]
    assert done.returncode == 3
    assert report["tested"] == 6
    assert [(row["candidate"], row["transposed"]) for row in report["failing"]] == [("ch01:halves_flat", True)]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ch01:halves", "--grid", "rows=7", "--no-boundaries"], 2, "NOTHING_TO_TEST"),
        pytest.param(["ch01:halves", "--grid", "depth=7"], 1, "rows, columns", marks=pytest.mark.slow),
        (["ch01:halves", "--grid", "rows=x y"], 2, "BAD_SIZES"),
    ],
)
def test_what_cannot_be_tested_is_no_pass(cli, suite: Path, words: list[str], code: int, message: str) -> None:  # type: ignore[no-untyped-def]
    done = cli("bench", "fuzz", *words, "--bench-root", str(suite))
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_a_grid_is_read_with_and_without_repeated_names() -> None:
    assert fuzz.read_grid(["S=448,512", "640", "kind=bfloat16"]) == {"S": [448, 512, 640], "kind": ["bfloat16"]}
    with pytest.raises(UsageError, match=r"^'rows' is not a size"):
        fuzz.read_grid(["rows"])


def test_boundaries_are_odd_sizes_and_neighbours_of_the_ends_one_at_a_time() -> None:
    rows = list(configurations({"S": [448, 512], "B": [16]}, boundaries=True))
    assert rows[:2] == [{"S": 448, "B": 16}, {"S": 512, "B": 16}]
    assert rows[2:7] == [{"S": size, "B": 16} for size in (1, 7, 33, 447, 513)]
    assert rows[7:] == [{"S": 448, "B": size} for size in (1, 7, 33, 15, 17)]
    assert len(list(configurations({"S": [448, 512], "B": [16]}, boundaries=False))) == 2


def test_a_size_travels_as_text() -> None:
    size = Sizes("small", {"rows": 448, "scale": 0.5, "dtype": "bfloat16"}, transposed=True)
    assert size.text() == "small,rows=448,scale=0.5,dtype=bfloat16+transposed"
    assert sizes.read(size.text()) == size
    assert sizes.read("default") == Sizes("default")


@pytest.mark.torch
@pytest.mark.slow
def test_a_run_takes_sizes_and_records_them(cli, suite: Path) -> None:  # type: ignore[no-untyped-def]
    words = ["--bench-root", str(suite), "--preset", "quick", "--json", "--evidence"]
    done = cli("bench", "run", "--targets", "ch01:halves_blocks", "--size", "rows=9", *words)
    assert done.returncode == 3, done.stderr
    (one,) = json.loads(done.stdout)["result"]["evidence"]
    assert one["disclosed"]["size"] == "small,rows=9"
    assert one["verdict"] == "incorrect"
