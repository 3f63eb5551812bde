"""Every planted problem is the first thing said; healthy programs are left in peace."""

import contextlib
import gzip
import re
import sqlite3
from pathlib import Path

import oracle_tools
import pytest
from problems import HEALTHY, PLANTED

from aisp_mcp.profile import load
from aisp_mcp.profile.insights.engine import ALL, insights
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_problem_is_named_first(name, tmp_path):
    rule, make = PLANTED[name]
    findings = insights(load.load(make(tmp_path), "steady")).found
    assert [i.rule for i in findings][:1] == [rule], [(i.rule, i.gain_ceiling) for i in findings]
    first = findings[0]
    assert first.evidence
    assert 0 < first.gain_ceiling <= 1
    assert first.next.tool.startswith("aisp_")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_gets_nothing_severe(name, tmp_path):
    findings = insights(load.load(HEALTHY[name](tmp_path), "steady")).found
    assert [i.rule for i in findings if i.severity == "high"] == []


def test_every_rule_says_what_it_is_and_has_a_name_of_its_own():
    assert len(ALL) == len({rule.__name__ for rule in ALL}) >= 20
    assert all(rule.__doc__ for rule in ALL)


def test_the_page_lists_every_rule():
    page = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text()
    rows = page.partition("## Named problems")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`([a-z_]+)`", rows)) == sorted(rule.__name__ for rule in ALL)


def test_at_least_thirty_are_planted_and_most_rules_are_reached():
    planted = {rule for rule, _ in PLANTED.values()}
    assert len(PLANTED) >= 30
    assert len(HEALTHY) >= 10
    assert len(planted) >= 35


def test_a_rule_without_its_data_says_what_is_missing(tmp_path):
    report = insights(load.load(HEALTHY["long kernels, queued ahead"](tmp_path)))
    reasons = {a.rule: a.reason for a in report.abstained}
    assert "no communication" in reasons["exposed_communication"]
    assert "local memory" in reasons["register_spills"]


@pytest.mark.parametrize("name", PLANTED)
def test_the_next_call_is_one_that_can_be_made(name, tmp_path):
    """The tool exists; a tool that reads files gets this profile's path, and answers."""
    ctx = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    load_catalog(ctx.settings)
    _, make = PLANTED[name]
    for insight in insights(load.load(make(tmp_path), "steady")).found:
        tool = registry.get(insight.next.tool)
        if insight.next.args:
            answer = execute(tool.name, insight.next.args, ctx)
            assert answer.status.value == "ok", (insight.rule, answer.error)
        else:
            assert tool.job is not None  # records anew: only the caller knows the command


def test_spills_are_unknown_where_an_export_is_silent_and_named_where_it_tells(tmp_path):
    """The driver of the capture writes 0 for each kernel; older ones tell."""
    path = tmp_path / "report.sqlite"
    path.write_bytes(gzip.decompress((oracle_tools.DATA / "train_step_h200.nsys.sqlite.gz").read_bytes()))
    reasons = {a.rule: a.reason for a in insights(load.load(path, "steady")).abstained}
    assert "local memory" in reasons["register_spills"]
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET localMemoryPerThread = 416 WHERE registersPerThread > 128")
    findings = {i.rule: i for i in insights(load.load(path, "steady")).found}
    assert findings["register_spills"].gain_ceiling > 0.1
