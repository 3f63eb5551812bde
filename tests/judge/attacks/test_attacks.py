"""The judge tried by its own corpus: no attack pays, no honest twin is accused, and no run is lost.

A few cases stand for all in the quick run, and all_zeros with its twin in test_selftest.py; `-m slow` tries every one
that needs no GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aisp_mcp.judge.attacks import corpus
from aisp_mcp.judge.attacks.base import Case

QUICK = (
    "poison_handed_back",
    "product_in_bfloat16",
    "input_as_scratch",
    "done_forged_at_once",
    "durations_rewritten",
    "weights_packed_in_prepare",
    "static_output_buffer",
)

GOOD = {"attack": "stopped", "honest": "passed"}


def found(case: Case, folder: Path) -> tuple[str, str]:
    """Finding of a case, with its evidence for whoever reads a failure."""
    row = corpus.row(case, corpus.run_apart(case, folder))
    return row["found"], str(row)


@pytest.mark.torch
@pytest.mark.parametrize("name", QUICK)
def test_the_usual_tricks_fail_and_the_usual_habits_do_not(name: str, tmp_path: Path) -> None:
    case = corpus.named(name)
    finding, evidence = found(case, tmp_path)
    assert finding == GOOD[case.kind], evidence


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", corpus.cases(device="cpu"), ids=lambda case: case.name)
def test_every_attack_is_stopped_and_every_honest_twin_passes(case: Case, tmp_path: Path) -> None:
    finding, evidence = found(case, tmp_path)
    if finding == "skipped":
        pytest.skip(evidence)
    assert finding == GOOD[case.kind], evidence
