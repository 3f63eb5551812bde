"""validation/run_labelled.py: the lines of its page."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("run_labelled", ROOT / "validation" / "run_labelled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_labelled"] = module
    spec.loader.exec_module(module)
    return module


def test_shares_have_wilsons_interval_and_leave_out_what_was_not_run(script: Any) -> None:
    low, high = script.interval(0, 10)
    assert (round(low, 3), round(high, 3)) == (0.0, 0.278)
    assert script.share(0, 0) == "–"
    found = [{judge: (word, "") for judge in script.JUDGES} for word in ("stopped", "passed", script.NOT_RUN)]
    rows = [{"deck": "attacks", "label": script.CHEAT, "name": str(each), "found": each} for each in found]
    lines = script.summary(rows)
    assert [(line["judged"], line["stopped"], line["passed"]) for line in lines] == [(2, 1, 1)] * len(script.JUDGES)
    for row, label in zip(rows, (script.CLEAN, script.CHEAT, script.CLEAN), strict=True):
        row |= {"deck": script.AUDITED, "label": label}
    about = {"date": "2026-11-29", "device": "a processor", "audited_on": "a GPU"}
    page = script.page({**about, "summary": lines, "rows": rows})
    assert page.count("| attacks | ") == len(script.JUDGES)
    assert "1 of 2: 50 %" in page
    assert page.count("| clean | accused | ") == page.count("| cheat | passed | ") == 1
    assert page.endswith("on a processor; audited kernels on a GPU.\n")


def test_the_page_is_that_of_the_record(script: Any) -> None:
    record = json.loads((ROOT / "results" / "labelled.json").read_text("utf-8"))
    assert record["summary"] == script.summary(record["rows"])
    assert (ROOT / "docs" / "labelled.md").read_text("utf-8") == script.page(record)


def test_findings_of_earlier_records_are_taken_over(script: Any, tmp_path: Path) -> None:
    attacks = [
        {"case": "a", "found": "stopped", "verdict": "invalid", "error": None},
        {"case": "b", "found": "passed", "verdict": "inconclusive", "error": None},
        {"case": "c", "found": "skipped", "verdict": None, "error": "a second GPU"},
    ]
    (tmp_path / "attacks.json").write_text(json.dumps({"rows": attacks}))
    own, guard, _ = script.JUDGES
    assert script.recorded([tmp_path / "attacks.json"]) == {
        (own, "a"): ("stopped", "invalid"),
        (own, "b"): ("undecided", "inconclusive"),
    }
    row = {"deck": "d", "name": "x", "label": "cheat", "found": {own: [script.NOT_RUN, ""], guard: ["stopped", "p"]}}
    (tmp_path / "labelled.json").write_text(json.dumps({"rows": [row]}))
    assert script.recorded([tmp_path / "labelled.json"]) == {(guard, "x"): ("stopped", "p")}
    said = (
        "all numbers of its answers are of float32, and so on",
        "2x; its answers agree with the baseline's to 7 digits",
    )
    solvers = [
        {"deck": "float32", "name": f"m/{each}", "verdict": "faster", "sentence": each} for each in (*said, "2x")
    ]
    solvers.append({"deck": "published", "name": "m/other", "verdict": "faster", "sentence": said[0]})
    solvers.append({**solvers[2], "name": "m/exact", "measures": {"apart": 1e-14}})
    solvers.append({"deck": "float32", "name": "m/none", "refusal": {"code": "NEEDS", "message": "numba"}})
    record = {"rows": [{**each, "published": None} for each in solvers]}
    (tmp_path / "algotune.json").write_text(json.dumps(record))
    assert {name: found for (_, name), (found, _) in script.recorded([tmp_path / "algotune.json"]).items()} == {
        f"m/{said[0]}": "stopped",
        f"m/{said[1]}": "stopped",
        "m/2x": "passed",
        "m/exact": script.NOT_RUN,
        "m/none": script.NOT_RUN,
    }
