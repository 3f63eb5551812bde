"""validation/run_algotune.py: its sample, and the lines of its page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TASK = "import numpy as np\n\n\nclass T:\n    def solve(self, problem):\n        return np.sort(problem)\n"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    monkeypatch.delitem(sys.modules, "run_labelled", raising=False)
    import run_algotune

    return run_algotune


def solver(root: Path, model: str, task: str, text: str) -> None:
    folder = root / "results" / model / task
    folder.mkdir(parents=True)
    (folder / "solver.py").write_text(text)


def test_candidates_need_numpy_and_scipy_alone_and_have_their_published_ratio(script: Any, tmp_path: Path) -> None:
    for task, text in (("sort", TASK), ("graph", f"import networkx\n{TASK}")):
        (tmp_path / "AlgoTuneTasks" / task).mkdir(parents=True)
        (tmp_path / "AlgoTuneTasks" / task / f"{task}.py").write_text(text)
        solver(tmp_path, "GPT-5 Pro (medium)", task, f"# float32 is not used\nimport helper\n{TASK}")
    (tmp_path / "results" / "GPT-5 Pro (medium)" / "sort" / "helper.py").write_text("")
    solver(tmp_path, "R1", "sort", TASK.replace("problem)\n", "problem.astype('float32'))\n", 2))
    solver(tmp_path, "o4-mini", "sort", f"import numba\n{TASK}")
    report = {"sort": {"gpt-5-pro (medium)": {"final_speedup": "1.5"}, "deepseek-reasoner": {"final_speedup": "N/A"}}}
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "agent_summary.json").write_text(json.dumps(report))
    found = script.candidates(tmp_path)
    assert {each.name: each.published for each in found} == {"GPT-5 Pro (medium)/sort": 1.5, "R1/sort": None}
    decks = {name: [each.name for each in script.deck(found, name)] for name in ("published", "float32")}
    assert decks == {"published": ["GPT-5 Pro (medium)/sort"], "float32": ["R1/sort"]}


def test_inconclusive_verdicts_have_no_sign_and_refusals_a_reason(script: Any) -> None:
    about = {"deck": "published", "device": "a processor", "published": 2.0, "share": 1.0}
    verdicts = ("faster", "faster", "slower", "inconclusive", "incorrect")
    rows = [{**about, "name": f"m/{at}", "verdict": each, "sentence": each} for at, each in enumerate(verdicts)]
    rows.append({**about, "name": "m/x", "refusal": {"code": "CHECKER_ACCEPTS", "message": "so"}})
    said = "faster: 2x; answers judged by your c; all numbers of its answers are of float32, and the baseline's are not"
    for name, sentence in (("m/a", said), ("m/b", "faster: its answers agree with the baseline's to 7 digits")):
        rows.append({**about, "deck": "float32", "name": name, "verdict": "faster", "sentence": sentence})
    suite = {"tasks": 3, "solvers": 9, "usable": 1, "missing": {"cvxpy": 2}}
    page = script.page({"rows": rows, "suite": suite})
    assert "what they import: cvxpy (2)." in page
    assert "| a processor, `quick`, at 100 % of n | 5 | 4 | 2 | 1 | 1 | 2 of 3: 67 %" in page
    assert "1 (the checker accepts wrong answers)" in page
    assert "| m/a | 2.0 | faster | float32 |" in page
    assert "| m/b | 2.0 | faster | agree with the baseline's to 7 digits |" in page


def test_the_page_is_that_of_the_record(script: Any) -> None:
    record = json.loads((ROOT / "results" / "cpu-algotune.json").read_text("utf-8"))
    assert (ROOT / "docs" / "algotune.md").read_text("utf-8") == script.page(record)
