"""What a comparison tells while it runs. 5 s of processor time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from harness_support import HONEST, LEAST, PRODUCT, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options

pytestmark = [pytest.mark.torch]


def test_the_time_left_is_told_once_a_replicate_has_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    told: list[str] = []
    options = Options(replace(LEAST, replicates=2), "small", "cpu", tmp_path)
    compare(write_pair(tmp_path, HONEST, PRODUCT), options, lambda done, total, message: told.append(message))
    first, second = (message.split(": ", 1)[1] for message in told if "replicate" in message)
    assert first == "replicate 1 of 2"
    assert re.fullmatch(r"replicate 2 of 2, about \d+ s left", second)
