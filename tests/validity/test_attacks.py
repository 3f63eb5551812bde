"""The judge tried by its own corpus: no attack pays, no honest twin is accused, and no run is lost.

A few cases stand for all in the quick run, and all_zeros with its twin in test_selftest.py; `-m slow` tries every one
that needs no GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aisp_mcp.judge.comparison import Options, keep_libraries_loaded
from aisp_mcp.judge.presets import Preset
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case

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


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of processes that have loaded their libraries, for as long as it exists."""
    folder = tmp_path_factory.mktemp("loaded")
    keep_libraries_loaded(Options(corpus.PRESET, "default", "cpu", folder), folder, 600)
    yield folder
    shutil.rmtree(folder)


def found(case: Case, folder: Path, loaded: Path, preset: Preset = corpus.PRESET) -> tuple[str, str]:
    """Finding of a case, with its evidence for whoever reads a failure."""
    row = corpus.row(case, corpus.run_apart(case, folder, preset=preset, loaded=loaded))
    return row["found"], str(row)


@pytest.mark.torch
@pytest.mark.parametrize("name", QUICK)
def test_the_usual_tricks_fail_and_the_usual_habits_do_not(name: str, tmp_path: Path, loaded: Path) -> None:
    case = corpus.named(name)
    preset = corpus.FAST if case.kind == "honest" else corpus.PRESET  # no gain of theirs is judged
    finding, evidence = found(case, tmp_path, loaded, preset)
    assert finding == GOOD[case.kind], evidence


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", corpus.cases(device="cpu"), ids=lambda case: case.name)
def test_every_attack_is_stopped_and_every_honest_twin_passes(case: Case, tmp_path: Path, loaded: Path) -> None:
    finding, evidence = found(case, tmp_path, loaded)
    if finding == "skipped":
        pytest.skip(evidence)
    assert finding == GOOD[case.kind], evidence
