"""The knee of a sweep, by hand and of a real loader whose samples wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.runs.diagnosis import knee
from aisp_mcp.runs.diagnosis.knee import Setting

DATASET = """
import time

class Slow:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.024)  # a slow disk; long beside the wait for a core on a machine that others use
        return index

def make():
    return Slow()

def endless():
    return iter(range(10))
"""


def setting(workers: int, rate: float, spread: float = 0.01, prefetch: int | None = 2) -> Setting:
    return Setting(
        workers=workers, prefetch=prefetch if workers else None, pinned=False, samples_per_s=rate,
        low=rate * (1 - spread), high=rate * (1 + spread), first_batch_s=0.1,
    )  # fmt: skip


def test_the_cheapest_setting_near_the_best_is_chosen() -> None:
    point = knee.knee([setting(0, 100), setting(2, 195), setting(4, 390), setting(8, 400), setting(16, 380)])
    assert (point.workers, point.speedup, point.of_best) == (4, pytest.approx(3.9), pytest.approx(0.975))


def test_workers_that_do_not_pay_are_not_chosen() -> None:
    point = knee.knee([setting(0, 100), setting(1, 60), setting(2, 102)])
    assert (point.workers, point.prefetch) == (0, None)
    assert point.sentence.startswith("workers do not pay here")


def test_less_prefetch_is_cheaper() -> None:
    point = knee.knee([setting(2, 200, prefetch=4), setting(2, 199, prefetch=1)])
    assert point.prefetch == 1


@pytest.mark.torch
def test_a_waiting_dataset_gains_from_workers(cli_here: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "data.py").write_text(DATASET)
    arguments = ["--batch", "8", "--batches", "4", "--workers", "0", "2", "--json"]
    done = cli_here("profile", "dataloader", f"{tmp_path / 'data.py'}:make", *arguments)
    result = json.loads(done.stdout)["result"]
    rates = {row["workers"]: row["samples_per_s"] for row in result["settings"]}
    assert rates[0] <= 42  # no more than one sample per 24 ms
    assert rates[2] > 1.3 * rates[0]
    assert result["knee"]["workers"] == 2


@pytest.mark.parametrize(
    ("factory", "code"), [("data.py", "BAD_FACTORY"), ("nowhere.py:make", "NO_SCRIPT"), ("{}:make", None)]
)
def test_a_factory_that_cannot_be_is_refused_before_a_job(
    cli_here: Any, tmp_path: Path, factory: str, code: str | None
) -> None:
    (tmp_path / "data.py").write_text(DATASET)
    done = cli_here("profile", "dataloader", factory.format(tmp_path / "data.py"), "--dry-run", "--json")
    answer = json.loads(done.stdout)
    assert answer.get("error", {}).get("code") == code
    if code is None:
        assert answer["result"]["details"]["settings"] >= 2
