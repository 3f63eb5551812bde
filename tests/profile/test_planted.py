"""Programs with one planted problem each, and healthy ones, as recorded on an H200: what the rules say of them today.

`validation/run_planted.py` records them; results/h200-planted.json says what the tools answered on that day.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.profile import load
from aisp_mcp.profile.insights import limiter
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.records import Profile

HERE = Path(__file__).parent
RECORD: dict[str, Any] = json.loads((HERE.parents[1] / "results/h200-planted.json").read_text())
PROGRAMS: dict[str, dict[str, Any]] = RECORD["programs"]
PLANTED = [name for name, row in PROGRAMS.items() if row["planted"] and row["holds"]]
HEALTHY = [name for name, row in PROGRAMS.items() if not row["planted"] and row["holds"]]


@cache
def _profiles() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(gzip.decompress((HERE / "data/planted_h200.profiles.json.gz").read_bytes()))
    return answer


@cache
def _traces() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(lzma.decompress((HERE / "data/planted_h200.traces.json.xz").read_bytes()))
    return answer


def profile_of(name: str, folder: Path) -> Profile:
    """From the slim trace where there is one; counters are judged anew."""
    kept = Profile.model_validate(_profiles()[name])
    if name in _traces():
        path = folder / "trace.json"
        path.write_text(json.dumps(_traces()[name]))
        return load.load(path, "steady").model_copy(update={"compile": kept.compile})
    judged = [kernel.model_copy(update={"limiter": limiter.judge(kernel)}) for kernel in kept.kernels]
    # Recorded before flushes were counted; each of these programs returns one segment at a time.
    memory = [m.model_copy(update={"segment_flushes": m.segment_frees}) for m in kept.memory]
    return kept.model_copy(update={"kernels": judged, "memory": memory})


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_problem_is_named_first(name: str, tmp_path: Path) -> None:
    findings = insights(profile_of(name, tmp_path)).found
    assert [i.rule for i in findings][:1] == [PROGRAMS[name]["planted"]], [(i.rule, i.gain_ceiling) for i in findings]
    assert findings[0].evidence


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_is_told_nothing_severe(name: str, tmp_path: Path) -> None:
    findings = insights(profile_of(name, tmp_path)).found
    assert [(i.rule, i.gain_ceiling) for i in findings if i.severity == "high"] == []


def test_the_record_holds_every_program() -> None:
    assert set(_profiles()) == {name for name, row in PROGRAMS.items() if "found" in row}
    for row in PROGRAMS.values():
        first = row.get("found", [])[:1]
        severe = [rule for rule, severity, _ in row.get("found", []) if severity == "high"]
        assert row["holds"] == ([r[0] for r in first] == [row["planted"]] if row["planted"] else not severe)


def test_thirty_are_planted_ten_are_healthy_and_most_rules_are_reached() -> None:
    assert len(PLANTED) >= 30
    assert len(HEALTHY) >= 10
    assert len({PROGRAMS[name]["planted"] for name in PLANTED}) >= 25


def test_the_data_name_no_machine_and_stay_small() -> None:
    for text in (json.dumps(_profiles()), json.dumps(_traces())):
        assert re.findall(r"GPU-[0-9a-f]{8}-|/(?:home|root|tmp|work|opt)/", text) == []
    assert sum(path.stat().st_size for path in (HERE / "data").iterdir()) <= 2_000_000
