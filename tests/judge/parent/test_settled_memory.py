"""No timed round on a CPU touches new memory: the baselines' first ones did, after fewer calls than the candidate's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from harness_support import judge

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.timing.cpu import FEW_FAULTS, CpuStrategy, is_settled
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.messages import TOUCH
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Comparison

pytestmark = [pytest.mark.torch]
LARGE = '''
    """A softmax of 8 MiB."""
    from aisp_mcp.bench import Benchmark
    class Product(Benchmark):
        in_place = {in_place}
        def inputs(self, rng):
            return {{"x": rng.randn(2048, 1024)}}
        def run(self, x):
            return x.softmax(-1)
'''
SAME = "def run(x):\n    return x.softmax(-1)\n"


Found = tuple[Comparison, list[dict[str, Any]]]


def compared(folder: Path, in_place: str) -> Found:
    """The comparison with the same program, and its log."""
    comparison = judge(folder, SAME, LARGE.format(in_place=in_place))
    return comparison, [json.loads(line) for line in Path(str(comparison.log_path)).read_text().splitlines()]


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Of a program whose inputs stay as they are."""
    return compared(tmp_path_factory.mktemp("stays"), "()")


def test_no_timed_round_of_a_large_output_touches_new_memory(tmp_path: Path, stays: Found) -> None:
    """Neither of a program whose inputs stay, nor of one whose inputs may change."""
    for _, log in (stays, compared(tmp_path, "('x',)")):
        rounds = [row["account"]["minor_faults"] for row in log if row["kind"] == "round"]
        assert len(rounds) == 6
        assert max(rounds) <= FEW_FAULTS  # of 2,048 for one output


def test_memory_that_is_touched_beforehand_is_not_memory_of_the_calls(stays: Found) -> None:
    found, log = stays
    [settled] = [row for row in log if row["kind"] == "settled"]
    assert found.optimized is not None
    assert found.optimized.memory.host_peak_rss is not None
    assert max(settled["touched"].values()) > 32 << 20
    assert found.optimized.memory.host_peak_rss < 176 << 20  # the touched 128 MiB would be added to 56 or more


class Workers:
    """A driver whose workers touch new memory in the first of their rounds, so its calls take four times as long."""

    def __init__(self, size: int) -> None:
        self.rounds, self.learned = dict.fromkeys(Role, 0), dict[Role, float]()
        self.asked, self.filled = list[tuple[Role, int, int]](), list[dict[Role, int]]()
        self.workers: Any = {role: SimpleNamespace(settle_memory=lambda: 0) for role in Role}
        self.result = SimpleNamespace(index=0)
        spec = TensorSpec("x", "float32", (size,), (1,), 4)
        opened = {
            "goal": "speed",
            "converts": False,
            "in_place": [],
            "layout": Layout((), (spec,), (spec,), 12).to_json(),
        }
        self.session = SimpleNamespace(opened=opened, log=SimpleNamespace(append=lambda *_, **__: None))

    def guarded(self, _: Role, action: Callable[[], Any]) -> Any:
        return action()

    def learn(self, role: Role, timing: RoundTiming) -> None:
        self.learned[role] = timing.elapsed_s

    def most_calls_of_all(self) -> dict[Role, int]:
        return {role: round(12e-3 / self.learned.get(role, 4e-3)) for role in Role}

    def as_many(self, counts: dict[Role, int]) -> dict[Role, int]:
        return counts

    def fill(self, counts: dict[Role, int]) -> None:
        self.filled.append(counts)

    def run_round(self, role: Role, count: int, bits: int = 0) -> RoundTiming:
        self.asked.append((role, count, bits))
        self.rounds[role] += not bits
        new = self.rounds[role] == 1
        return RoundTiming(count, 4e-3 if new else 1e-3, [1] * count, Account(minor_faults=2048 if new else 0))


TWO_QUIET_ROUNDS = [(3, TOUCH), (3, 0), (3, 0), (3, 0)]
AND_TWO_OF_ALL_CALLS = [(3, TOUCH), (3, 0), (3, 0), (12, TOUCH), (12, 0), (12, 0)]


@pytest.mark.parametrize(("size", "expected"), [(1 << 18, AND_TWO_OF_ALL_CALLS), (16, TWO_QUIET_ROUNDS)])
def test_rounds_are_as_long_as_timed_ones_before_they_count(
    monkeypatch: pytest.MonkeyPatch, size: int, expected: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(CpuStrategy, "output_bits", lambda self, driver: 0)
    monkeypatch.setattr(CpuStrategy, "dummy_round", lambda self, driver, role, count: None)
    driver: Any = Workers(size)
    CpuStrategy().settle(driver, dict.fromkeys(Role, 3))
    assert driver.learned == dict.fromkeys(Role, 1e-3)
    assert all([row[1:] for row in driver.asked if row[0] is role] == expected for role in Role)
    filled = {count for count, bits in expected if bits} if size > 1000 else set()
    assert {count for counts in driver.filled for count in counts.values()} == filled


@pytest.mark.parametrize(
    ("faults", "settled"),
    [
        ([], False),
        ([[0, 0, 0]], False),
        ([[4096, 0, 0], [0, 0, 0]], False),
        ([[4096, 0, 0], [0, 0, 3], [1, 0, 0]], True),
        ([[4096, 4096, 0], [4096, 4096, 0]], False),
        ([[16384, 16390, 16384], [16384, 16384, 16500]], True),
    ],
    ids=["no round", "one round", "one quiet round", "quiet", "the baselines have had fewer calls", "new in each call"],
)
def test_memory_is_settled_if_rounds_are_alike(faults: list[list[int]], settled: bool) -> None:
    assert is_settled(faults) == settled
