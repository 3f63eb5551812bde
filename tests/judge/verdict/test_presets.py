"""What each kind of comparison makes of a preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from aisp_mcp.judge.presets import COLD_MORE, CPU_CALLS, GPU_CALLS, PRESETS, RANKS_CALLS, RANKS_ROUND_S, for_kind


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ({"place": "cpu"}, {"max_calls": CPU_CALLS}),
        ({"place": "cuda"}, {"round_s": 0.009, "palindromes": 3, "elsewhere": 6, "max_calls": GPU_CALLS}),
        ({"place": "ranks"}, {"round_s": RANKS_ROUND_S, "max_calls": RANKS_CALLS}),
        ({"place": "ranks", "round_trips_s": [50e-6, 100e-6]}, {"round_s": RANKS_ROUND_S, "max_calls": RANKS_CALLS}),
        ({"place": "ranks", "round_trips_s": [50e-6, 1e-3]}, {"round_s": 0.1, "max_calls": RANKS_CALLS}),
        (
            {"place": "ranks", "call_s": 0.1},
            {"round_s": RANKS_ROUND_S, "max_calls": RANKS_CALLS, "palindromes": 3},
        ),
        ({"place": "cpu", "goal": "energy"}, {}),
        ({"place": "cpu", "goal": "cold"}, {"replicates": 12}),
    ],
)
def test_a_kind_changes_what_it_must(kind: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    adapted = for_kind(PRESETS["default"], **kind)
    assert adapted == replace(PRESETS["default"], **{**changed, "round_s": pytest.approx(adapted.round_s)})
    assert adapted.round_s == pytest.approx(changed.get("round_s", PRESETS["default"].round_s))


def test_cold_starts_have_more_replicates_and_looks_at_multiples_of_three() -> None:
    cold = for_kind(PRESETS["release"], place="cuda", goal="cold")
    assert (cold.replicates, cold.looks) == (24, (12, 15, 21, 24))
    assert cold.replicates >= COLD_MORE * PRESETS["release"].replicates
    assert cold.palindromes == PRESETS["release"].for_gpu().palindromes
