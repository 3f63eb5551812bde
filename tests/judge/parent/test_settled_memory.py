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
from aisp_mcp.judge.protocol.roles import Role

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


def records(folder: Path) -> list[dict[str, Any]]:
    """The log of the only comparison in the folder."""
    [log] = folder.glob("*.rounds.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("in_place", ["()", "('x',)"], ids=["inputs stay", "inputs may change"])
def test_no_timed_round_of_a_large_output_touches_new_memory(tmp_path: Path, in_place: str) -> None:
    judge(tmp_path, SAME, LARGE.format(in_place=in_place))
    rounds = [row["account"]["minor_faults"] for row in records(tmp_path) if row["kind"] == "round"]
    assert len(rounds) == 6
    assert max(rounds) <= FEW_FAULTS  # of 2,048 for one output


def test_memory_that_is_touched_beforehand_is_not_memory_of_the_calls(tmp_path: Path) -> None:
    found = judge(tmp_path, SAME, LARGE.format(in_place="()"))
    [settled] = [row for row in records(tmp_path) if row["kind"] == "settled"]
    assert found.optimized is not None
    assert found.optimized.memory.host_peak_rss is not None
    assert max(settled["touched"].values()) > 32 << 20
    assert found.optimized.memory.host_peak_rss < 176 << 20  # the touched 128 MiB would be added to 56 or more


class Workers:
    """A driver whose workers touch new memory in the first of their rounds, which takes four times as long."""

    def __init__(self) -> None:
        self.rounds, self.learned = dict.fromkeys(Role, 0), dict[Role, float]()
        self.workers: Any = {role: SimpleNamespace(settle_memory=lambda: 0) for role in Role}
        self.result = SimpleNamespace(index=0)
        opened = {"goal": "speed", "in_place": []}
        self.session = SimpleNamespace(opened=opened, log=SimpleNamespace(append=lambda *_, **__: None))

    def guarded(self, _: Role, action: Callable[[], Any]) -> Any:
        return action()

    def learn(self, role: Role, timing: RoundTiming) -> None:
        self.learned[role] = timing.elapsed_s

    def run_round(self, role: Role, count: int, bits: int = 0) -> RoundTiming:
        self.rounds[role] += not bits
        new = self.rounds[role] == 1
        return RoundTiming(count, 4e-3 if new else 1e-3, [1] * count, Account(minor_faults=2048 if new else 0))


def test_the_number_of_calls_follows_from_rounds_without_page_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuStrategy, "output_bits", lambda self, driver: 0)
    monkeypatch.setattr(CpuStrategy, "dummy_round", lambda self, driver, role, count: None)
    driver: Any = Workers()
    CpuStrategy().settle(driver, dict.fromkeys(Role, 1))
    assert driver.learned == dict.fromkeys(Role, 1e-3)


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
