"""Kinds of runs are kept apart, also those that were stored before runs had one, and hints are told from verdicts."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from analyze_runs import pair, run_of

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs import leaderboards
from aisp_mcp.store import schema
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import ANY_KIND, RunKind, VerdictFilter

JOB = ("params", "principal", "state", "resources", "timeout_s", "run_dir", "created_at", "python", "cwd")


def comparison(ratio: float = 9.0, **more: Any) -> dict[str, Any]:
    facts = {"target": "ch07:row_sum", "candidate": "", "verdict": "faster", "sentence": "faster", "noise_floor": 0.01}
    interval = {"low": 0.9 * ratio, "high": 1.1 * ratio}
    return {**facts, "ratio": ratio, "interval": interval, "isolation": "L2", "replicates": 5, "goal": "speed", **more}


def document(name: str, *compared: dict[str, Any], **more: Any) -> dict[str, Any]:
    facts = {"id": name, "created_at": 1.0, "preset": "default", "profile": "portable", "environment": {}}
    return {**facts, "comparisons": list(compared), **more}


GATED = document("r_gate", comparison(0.49, verdict="slower"), environment={"commits": {"base": "b" * 40, "head": "h"}})
FORMER = {
    "bench": document("r_bench", comparison()),
    "gate": GATED,
    "optimize": document("r_session", comparison(candidate="o_0123456789ab_001")),
    "functions": document("r_functions", comparison(disclosed={"inputs": "x=randn(4)"})),
    "verify": document("r_verify", comparison(candidate="mine")),
}


def test_stored_runs_get_the_kind_that_they_show(tmp_path: Path) -> None:
    """A store of the version before: its runs are readable, and a gate is no verdict of its target."""
    look = document("r_look", comparison(0.5, log_path="runs/j_1/look-2/pair.jsonl"))
    with sqlite3.connect(tmp_path / "aisp.db") as db:
        former = schema.MIGRATIONS.index(schema._KINDS)
        for migration in schema.MIGRATIONS[:former]:
            db.executescript(migration)
        db.execute(f"PRAGMA user_version = {former}")
        names = ", ".join(JOB)
        job = ("{}", "me", "succeeded", "[]", 1.0, "", 1.0, "", "")
        marks = ", ".join("?" for _ in JOB)
        db.execute(f"INSERT INTO jobs (id, tool, {names}) VALUES ('j_1', 'aisp_verify_candidate', {marks})", job)
        for kind, body in {**FORMER, "look": look}.items():
            job_id = "j_1" if kind == "verify" else None
            values = (body["id"], job_id, 1.0, json.dumps(body))
            db.execute("INSERT INTO runs (id, job_id, created_at, body) VALUES (?, ?, ?, ?)", values)
    db.close()
    with Store(tmp_path) as store:
        kinds = {kind: store.run(Run, body["id"]).kind.value for kind, body in FORMER.items()}
        assert kinds == {kind: kind for kind in FORMER}
        assert store.run(Run, "r_look").kind is RunKind.GATE
        assert "r_look" not in {run.id for run, _ in store.newest_runs(Run, 9, None, None)}
        rows, _ = store.list_verdicts(VerdictFilter())
        assert {row.run_id for row in rows} == {"r_bench", "r_functions"}
        (gate,) = (row for row in store.list_verdicts(VerdictFilter(kinds=ANY_KIND))[0] if row.kind is RunKind.GATE)
        assert (gate.kind, gate.revision, gate.base_revision) == (RunKind.GATE, "h", "b" * 40)
        assert store.run_ids(kinds=[RunKind.OPTIMIZE]) == ["r_session"]


def test_functions_are_known_by_their_content(tmp_path: Path) -> None:
    """In a store of the version before: by the sources that its runs kept; then as the judge discloses it."""
    sources = {"r_1": "slow", "r_2": "slow", "r_3": "other", "r_4": "slow"}
    with sqlite3.connect(tmp_path / "aisp.db") as db:
        before = next(at for at, text in enumerate(schema.MIGRATIONS) if "identified(" in text)
        for migration in schema.MIGRATIONS[:before]:
            db.executescript(migration)
        db.execute(f"PRAGMA user_version = {before}")
        for run_id, file in sources.items():
            body = comparison(target=f"{file}:total", candidate="fast", disclosed={"inputs": "x=randn(4)"})
            run = document(run_id, body, kind="functions")
            db.execute("INSERT INTO runs (id, created_at, body) VALUES (?, 1.0, ?)", (run_id, json.dumps(run)))
            folder = tmp_path / "runs" / run_id / "sources" / f"{file}-total_fast"
            (folder / "baseline_source").mkdir(parents=True)
            (folder / "baseline.py").write_text(f"_function = function('/x/baseline_source/{file}.py', 'total', ())")
            factor = 3 if run_id == "r_2" else 2
            text = f"# {run_id}\nFACTOR = {factor}\n\ndef total(x):\n    return FACTOR * x.sum()\n"
            (folder / "baseline_source" / f"{file}.py").write_text(text)
    db.close()
    with Store(tmp_path) as store:
        rows = {row.run_id: row.target for row in store.list_verdicts(VerdictFilter())[0]}
        assert rows["r_1"].startswith("slow:total@")
        assert rows["r_1"].endswith("_fast")
        assert rows["r_1"] == rows["r_3"] == rows["r_4"], "one content, also under another file's name"
        assert rows["r_2"] != rows["r_1"], "one name, two contents"
        named = comparison(target="slow:total", disclosed={"identity": "mine@123456"})
        store.save_run(Run.model_validate(document("r_5", named, kind="functions")), None)
        assert store.list_verdicts(VerdictFilter(run="r_5"))[0][0].benchmark == "mine@123456"


def test_a_gate_does_not_hide_the_verdict_of_its_target(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for body in (FORMER["bench"], GATED, document("r_quick", comparison(12.0, replicates=1), preset="quick")):
            store.save_run(Run.model_validate(body), None)
        latest = store.latest_verdicts(VerdictFilter())
        assert [(row.preset, row.ratio, row.provisional) for row in latest] == [
            ("quick", 12.0, True),
            ("default", 9.0, False),
        ], "newest first, one per preset"
        assert [row.run_id for row in store.latest_verdicts(VerdictFilter(confirmed=True))] == ["r_bench"]
        assert store.count_verdicts(VerdictFilter()) == {"faster": 2}
        everything = store.latest_verdicts(VerdictFilter(kinds=ANY_KIND))
        (entry,) = leaderboards.leaderboards(everything)["speed"]
        assert (entry["ratio"], entry["run_id"]) == (9.0, "r_bench"), "neither a hint nor a gate is ranked"
        assert leaderboards.summary({}, everything)["best"]["unknown"]["run_id"] == "r_bench"


def test_candidates_compete_within_their_target(tmp_path: Path) -> None:
    """A ratio of 200 says that the baseline was slow; targets are ordered by their share of the ceiling."""
    peak = {"kind": "copy", "rate": 1.0, "ceiling": 1.0}
    easy = comparison(200.0, target="ch01:easy", peak={**peak, "share": 0.2})
    hard = [
        comparison(1.5, target="ch01:hard", peak={**peak, "share": 0.9}),
        comparison(1.2, target="ch01:hard", candidate="tiled", peak={**peak, "share": 0.7}),
    ]
    with Store(tmp_path) as store:
        store.save_run(Run.model_validate(document("r_1", easy, *hard)), None)
        board = leaderboards.leaderboards(store.latest_verdicts(VerdictFilter()))["speed"]
    assert [(row["target"], row["of_peak"]) for row in board] == [("ch01:hard", 0.9), ("ch01:easy", 0.2)]
    assert board[0]["variants"] == ["ch01:hard", "ch01:hard_tiled"]


@pytest.mark.parametrize(
    ("used", "worker", "bound"),
    [("lower_bound", 12.0, True), ("parent", 12.0, True), ("parent", 9.1, False), ("worker", 12.0, False)],
)
def test_the_row_and_the_record_agree_on_lower_bounds(tmp_path: Path, used: str, worker: float, bound: bool) -> None:
    clocks = {"used": used, "ratio_parent": 9.0, "ratio_worker": worker, "delta": 0.05}
    body = comparison(clocks=clocks)
    with Store(tmp_path) as store:
        store.save_run(Run.model_validate(document("r_1", body)), None)
        (row,), _ = store.list_verdicts(VerdictFilter())
    assert (row.at_least, Comparison.model_validate(body).at_least) == (bound, bound)


def test_a_run_that_compared_nothing_neither_passed_nor_failed() -> None:
    assert run_of().passed is None
    assert run_of(pair()).passed is True
