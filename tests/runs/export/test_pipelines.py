"""Formats that pipelines read of a run and of a gate: JUnit XML, the badge and the comment."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from export_runs import HOSTILE, comparison, run_of

from aisp_mcp.gate.comment import of_gate
from aisp_mcp.gate.records import GateReport, GateRow
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import badge, junit, outcomes
from aisp_mcp.runs.export.comment import MAX_CHARS, marker, run_comment
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Failure, Run

RATIOS = {"faster": 2.5, "slower": 0.5, "same": 1.001, "inconclusive": 1.03}
CHILDREN = {None, "failure", "error", "skipped"}


@pytest.fixture
def everything() -> Run:
    """Every verdict once, a skip and a failure."""
    return run_of(
        *(comparison(f"ch01:{v.value}", RATIOS.get(v.value), v, seconds=1.5) for v in Verdict),
        skipped=[Skip(target="ch02:gpu", code="NO_GPU", missing="1 GPU")],
        failed=[Failure(target="ch03:bad", code="RAISED", message="it raised", hint="correct it")],
        seconds=9.0,
    )


def checked(document: bytes) -> dict[str, Element]:
    """Cases by name of a document that keeps to what readers of JUnit XML agree on."""
    assert document.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    root = ElementTree.fromstring(document)
    assert root.tag == "testsuites"
    [suite] = root
    assert suite[0].tag == "properties"
    cases = suite.findall("testcase")
    assert len(cases) == len(suite) - 1
    datetime.strptime(suite.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S")
    for level in (root, suite):
        assert int(level.attrib["tests"]) == len(cases)
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(level.attrib[name]) == len(suite.findall(f"testcase/{tag}")), name
        float(level.attrib["time"])
    for case in cases:
        assert {"name", "classname", "time"} == set(case.attrib)
        *outcome, output = [child.tag for child in case]
        assert output == "system-out"
        assert len(outcome) <= 1
        assert set(outcome) <= CHILDREN
    assert all(item.attrib["message"] for tag in ("failure", "error", "skipped") for item in suite.iter(tag))
    return {case.attrib["name"]: case for case in cases}


def outcome(case: Element) -> str | None:
    """The tag that says what came of a case; None for passed."""
    return next((child.tag for child in case if child.tag != "system-out"), None)


def of(run: Run, fail_inconclusive: bool = False) -> dict[str, Element]:
    rows = outcomes.of_run(run, fail_inconclusive)
    return checked(junit.to_junit(rows, "suite", run.created_at, run.seconds, {"run_id": run.id}))


def test_junit_passes_only_what_was_proven(everything: Run) -> None:
    cases = of(everything)
    assert {name: outcome(case) for name, case in cases.items()} == {
        "faster": None, "same": None, "inconclusive": "skipped", "gpu": "skipped", "slower": "failure",
        "incorrect": "failure", "invalid": "failure", "bad": "error",
    }  # fmt: skip
    assert cases["gpu"].find("skipped").attrib["message"] == "skipped: NO_GPU: needs 1 GPU"  # type: ignore[union-attr]
    assert cases["inconclusive"].find("skipped").attrib["message"].startswith("inconclusive")  # type: ignore[union-attr]
    assert "ratio 2.5 (interval 2.45 to 2.55), noise floor 1 %" in str(cases["faster"].findtext("system-out"))
    assert cases["faster"].attrib["classname"] == "ch01"
    assert outcome(of(everything, fail_inconclusive=True)["inconclusive"]) == "failure"


def test_hostile_names_stay_text() -> None:
    enemy = f"{HOSTILE}\x00\ufffe]]>"
    bad = comparison(enemy, 2.0, Verdict.SLOWER, enemy)
    run = run_of(bad, failed=[Failure(target=enemy, code=enemy, message=enemy)], preset=enemy)
    cases = checked(junit.to_junit(outcomes.of_run(run), enemy, 0, 0, {enemy: enemy}))
    assert "<script>" in next(iter(cases))
    assert "\x1b" not in "".join(cases)
    drawn = badge.to_badge(outcomes.of_run(run), enemy).decode()
    assert {item.tag.rpartition("}")[2] for item in ElementTree.fromstring(drawn).iter()} <= {
        "svg", "title", "rect", "g", "text",
    }  # fmt: skip
    assert "<script" not in run_comment(run).replace("\\<", "")


def said(*comparisons: tuple[str, Verdict], **more: object) -> tuple[str, str]:
    """Colour and words of the badge."""
    run = run_of(*(comparison(name, RATIOS.get(v.value), v) for name, v in comparisons), **more)
    rows = outcomes.of_run(run)
    drawn = badge.to_badge(rows).decode()
    assert badge.colour(rows) in drawn
    assert ElementTree.fromstring(drawn).attrib["aria-label"] == f"aisp: {badge.message(rows)}"
    return badge.colour(rows), badge.message(rows)


def test_a_badge_is_green_only_when_everything_was_judged() -> None:
    good = [("a", Verdict.FASTER), ("b", Verdict.SAME)]
    assert said(*good) == (badge.GREEN, "2 passed")
    assert said(*good, ("c", Verdict.INCONCLUSIVE)) == (badge.GREY, "2 passed · 1 not judged")
    assert said(*good, ("c", Verdict.INVALID)) == (badge.RED, "1 failed · 2 passed")
    assert said(skipped=[Skip(target="g", code="NO_GPU", missing="1 GPU")]) == (badge.GREY, "1 not judged")
    assert said() == (badge.GREY, "nothing measured")


def test_a_gates_policies_decide_what_fails() -> None:
    words = ("improved", "unchanged", "regressed", "could_not_judge", "wrong", "failed", "missing", "new")
    rows = [GateRow(target=f"ch01:{word}", outcome=word, sentence=word) for word in words]
    report = GateReport(run_id="r", passed=False, base="a" * 40, head="b", rows=rows, reasons=[], seconds=60)
    strict = of_gate(report, {"missing": "fail", "could_not_judge": "warn"})
    cases = checked(junit.to_junit(strict, "gate", 0, 60, {}))
    assert {name: outcome(case) for name, case in cases.items()} == {
        "improved": None, "unchanged": None, "regressed": "failure", "could_not_judge": "skipped",
        "wrong": "failure", "failed": "error", "missing": "failure", "new": "skipped",
    }  # fmt: skip
    lenient = {row.target: row.state for row in of_gate(report, {"missing": "warn"})}
    assert lenient["ch01:missing"] is outcomes.State.UNJUDGED


def test_a_runs_comment_has_the_worst_first_and_fits(everything: Run) -> None:
    text = run_comment(everything)
    assert text.splitlines()[0] == marker("run")
    assert "### Benchmarks did not pass, 2 of 8 not judged" in text
    places = [text.index(f" {word} |") for word in ("slower", "failed", "inconclusive", "skipped", "faster", "same")]
    assert places == sorted(places)
    many = run_of(*(comparison(f"ch01:t{n}", 1.5, Verdict.FASTER) for n in range(2000)))
    assert len(run_comment(many)) <= MAX_CHARS
    assert "more benchmarks do not fit here" in run_comment(many)


def test_the_command_writes_each_of_them(cli_here: Any, home: Path, everything: Run) -> None:
    with Store(home) as store:
        store.save_run(everything, None)
    folder = home / "runs" / everything.id
    for kind, name in (("junit", "junit.xml"), ("badge", "badge.svg"), ("comment", "comment.md")):
        done = cli_here("bench", "export", everything.id, "--format", kind)
        assert done.returncode == 0, done.stderr
        assert (folder / name).stat().st_size > 100
    assert outcome(checked((folder / "junit.xml").read_bytes())["inconclusive"]) == "skipped"
    done = cli_here("bench", "export", everything.id, "--format", "junit", "--samples")
    assert "NO_SAMPLES_IN_FORMAT" in done.stderr
