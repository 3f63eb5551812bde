"""Goal cold: the first answer of a fresh process, from the command line to the processes themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.timing.cold import ORDERS
from aisp_mcp.judge.presets import PRESETS, for_kind
from aisp_mcp.judge.protocol.module_loader import load_module
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict import conclude
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case

FAST = corpus.PRESETS["fast"]
WARM_STATE_KEPT = [case for case in corpus.cases() if case.issue == 103]
BASELINE = '''
"""A table made in Python at load."""
import torch
from aisp_mcp.bench import Benchmark
TABLE = torch.tensor([float(sum(divmod(i, 7))) for i in range(500000)])
class Table(Benchmark):
    goal = "cold"
    def inputs(self, rng):
        return {"x": rng.randn(500000)}
    def run(self, x):
        return x + TABLE
'''
CANDIDATE = '''
"""The table by the library, and made in Python by the second call."""
import torch
table = None
def run(x):
    global table
    if table is None:
        table = []
        i = torch.arange(500000)
        return x + (i // 7 + i % 7)
    table = table or [float(sum(divmod(i, 7))) for i in range(500000)]
    return x + torch.tensor(table)
'''


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with one pair."""
    chapter = tmp_path / "suite" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "baseline_table.py").write_text(BASELINE)
    (chapter / "optimized_table.py").write_text(CANDIDATE)
    return chapter.parent


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_shorter_start_is_faster_and_says_so_in_seconds(cli: Any, suite: Path) -> None:
    argv = (
        "bench",
        "run",
        "--bench-root",
        str(suite),
        "--targets",
        "ch01",
        "--preset",
        "quick",
        "--evidence",
        "--json",
    )
    answer = json.loads(cli(*argv, timeout=400).stdout)["result"]
    [one] = answer["evidence"]
    assert (one["goal"], one["replicates"]) == ("cold", 3)
    assert one["ratio"] > 1.2
    assert one["disclosed"]["cold"] == {"from": "first_call", "caches": "empty"}
    assert one["baseline"]["metric"]["value"] > one["optimized"]["metric"]["value"] > 0
    assert one["baseline"]["metric"]["unit"] == "s"
    assert (one["verification"]["checked"], one["verification"]["calls"]) == (3, 3)
    assert "time to first answer" in one["sentence"]
    assert "; the second call took 0." in one["sentence"]


def test_lists_know_the_goals(cli_here: Any, suite: Path) -> None:
    listed = json.loads(cli_here("bench", "list-targets", "--bench-root", str(suite), "--json").stdout)
    assert [row["goal"] for row in listed["result"]["targets"]] == ["cold"]
    covered = json.loads(cli_here("bench", "coverage", "--bench-root", str(suite), "--json").stdout)
    assert "cold" in json.dumps(covered["result"])


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", WARM_STATE_KEPT, ids=lambda case: case.name)
def test_warm_state_gains_nothing(case: Case) -> None:
    result = corpus.tried(case, FAST)
    assert result["found"] == ("stopped" if case.kind == "attack" else "passed"), result


def test_full_caches_need_folders_of_each_process_own(tmp_path: Path) -> None:
    pair = corpus.write(corpus.named("table_in_the_file"), tmp_path)
    comparison = compare(pair, Options(FAST, "default", "cpu", tmp_path, "L1"))
    assert isinstance(comparison, Skip)
    assert "isolation level L2" in comparison.missing


def test_presets_have_more_replicates_and_each_order_equally_often() -> None:
    numbers = {name: for_kind(preset, "cpu", "cold") for name, preset in PRESETS.items()}
    assert {name: value.replicates for name, value in numbers.items()} == {"quick": 3, "default": 12, "release": 24}
    assert numbers["release"].looks == (12, 15, 21, 24)
    assert {len({order[index] for order in ORDERS}) for index in range(3)} == {3}
    assert len(set(ORDERS)) == 6


def replicate(*seconds: float) -> Replicate:
    return Replicate(0, metric=dict(zip(Role, seconds, strict=False)))


def started(replicates: list[Replicate], isolation: str) -> Comparison:
    common = {"target": "t", "candidate": "", "goal": "cold", "isolation": isolation, "replicates": len(replicates)}
    return conclude.judged_by_metric(conclude.cold_starts(replicates, [], common), replicates, None, 0.95)


def test_the_verdict_is_that_of_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [replicate(2.0, 2.02, 1.0), replicate(2.01, 1.99, 1.01), replicate(1.99, 2.0, 0.99)]
    monkeypatch.setattr(conclude.figures, "of_program", lambda *_: side())
    comparison = started(rows, "L1")
    assert comparison.verdict is Verdict.FASTER
    assert comparison.ratio == pytest.approx(2.0, rel=0.02)
    assert [flag.code for flag in comparison.flags] == ["warm_state_possible"]
    assert comparison.sentence.endswith("time to first answer 2 s and 1 s")
    for row, second_s in zip(rows, (0.9, 0.5, 0.6), strict=True):
        row.second_s.update({Role.BASELINE: 0.3, Role.CANDIDATE: second_s})
    words = "; the second call took 0.6 s, the baseline's 0.3 s: a part of what the start saves is only postponed"
    assert started(rows, "L3").sentence.endswith(words)
    for row in rows:
        row.second_s[Role.CANDIDATE] = 0.4
    assert started(rows, "L3").flags == []
    assert started([*rows, replicate(2.0, 2.0, 0.0)], "L3").verdict is Verdict.INCONCLUSIVE  # no ratio of nothing


def side() -> Any:
    from aisp_mcp.judge.records.measurement import Figures

    return Figures(processes=1, rounds=1, calls=1, time_s=1.0, p50_s=1.0, p95_s=1.0, parent_time_s=1.0)


def test_bytecode_of_a_program_has_a_folder_of_its_own(tmp_path: Path) -> None:
    path, folder = tmp_path / "optimized_x.py", tmp_path / "bytecode"
    path.write_text("import json\nANSWER = 42\n")
    assert load_module(path, "aisp_x", str(folder)).ANSWER == 42
    [files] = folder.rglob("*.pyc")
    assert "optimized_x" in files.name
    assert not (tmp_path / "__pycache__").exists()
    files.write_bytes(files.read_bytes().replace(b"\x2a\x00\x00\x00", b"\x2b\x00\x00\x00"))
    assert load_module(path, "aisp_x", str(folder)).ANSWER == 43  # what is there is used
