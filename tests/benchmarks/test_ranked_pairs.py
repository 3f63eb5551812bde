"""Every shipped pair of several ranks: right on all ranks, in two processes that communicate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from agreement import targets

TARGETS = [target for target in targets() if target.needs.get("ranks")]
GPUS = [target for target in TARGETS if target.needs.get("gpus")]
NAMES = [target.name for target in TARGETS if target not in GPUS]

pytestmark = pytest.mark.torch


def problems(*words: str) -> dict[str, list[str]]:
    """Faults by program."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("ranked_agreement.py")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    texts: dict[str, list[str]] = json.loads(done.stdout)
    return texts


def test_there_are_targets_of_several_ranks() -> None:
    assert len(TARGETS) >= 8
    assert sum(len(target.variants) for target in TARGETS) >= 14
    assert {target.chapter for target in TARGETS} == {"ch04", "labs/fullstack_cluster", "labs/train_distributed"}
    assert [target.name for target in GPUS] == ["labs/train_distributed:symmem_training"]


FEW = ["ch04:allreduce_buckets", "labs/fullstack_cluster:09_end_to_end", "labs/train_distributed:zero1"]  # quick ones


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", [FEW, pytest.param(NAMES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_baselines_and_candidates_agree_on_every_rank(names: list[str]) -> None:
    failures = problems(*names)
    assert len(failures) == sum(len(target.variants) + 1 for target in TARGETS if target.name in names)
    assert {name: faults for name, faults in failures.items() if faults} == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_they_stand_up_to_adversarial_inputs() -> None:
    assert {name: faults for name, faults in problems("--all-modes", *NAMES).items() if faults} == {}
