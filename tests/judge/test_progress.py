"""What a comparison tells while it runs. 5 s of processor time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from harness_support import HONEST, LEAST, PRODUCT, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.telling import Telling

pytestmark = [pytest.mark.torch]


def test_the_time_left_is_told_once_a_replicate_has_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    told: list[str] = []
    options = Options(replace(LEAST, replicates=2), "small", "cpu", tmp_path)
    compare(write_pair(tmp_path, HONEST, PRODUCT), options, lambda done, total, message: told.append(message))
    steps = [message.split(": ", 1)[1] for message in told]
    assert steps[:3] == [
        "loading what the programs import",
        "drawing inputs, and computing what the baseline answers",
        "starting both programs",
    ]
    first, second = (step for step in steps if re.match(r"replicate \d of 2(,|$)", step))
    assert first == "replicate 1 of 2"
    assert re.fullmatch(r"replicate 2 of 2, about \d+ s left", second)
    assert steps[-1] == "judging"


def test_a_long_replicate_tells_its_steps_and_from_its_rounds_the_time_left() -> None:
    told: list[tuple[float, str]] = []
    now = [0.0]
    telling = Telling("pair", 3, lambda done, _, message: told.append((done, message)), lambda: now[0])

    def after(seconds: float, what: str, share: float = 0.0) -> None:
        now[0] += seconds
        telling.step(what, share)

    telling.begin(3)
    telling.replicate(0)
    after(0.2, "warming up")  # too soon after the last message
    after(4.8, "warming up")
    after(5.0, "timing both", 0.0)
    after(5.0, "timing both", 0.25)  # 10 s before the rounds, 20 s of rounds: 15 s of 90 s have passed
    assert told[1:] == [
        (0.0, "pair: replicate 1 of 3"),
        (0.0, "pair: replicate 1 of 3: warming up"),
        (0.0, "pair: replicate 1 of 3: timing both"),
        (0.25, "pair: replicate 1 of 3: timing both, about 75 s left"),
    ]
