"""Every kept fact names its source and the day of the check, or says that it has none."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from reference_docs import sources as provenance_tables

from aisp_mcp.machine.datasheets import load
from aisp_mcp.plan import lookup
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute

ROOT = Path(__file__).resolve().parents[2]
TABLES = provenance_tables.fact_tables()
ROWS = [(name, provenance_tables.name_of(row), row) for name, (_, rows) in TABLES.items() for row in rows]


@pytest.mark.parametrize(("table", "name", "row"), ROWS, ids=[f"{table}-{name}" for table, name, _ in ROWS])
def test_every_row_names_a_source_and_the_day_of_its_check(table: str, name: str, row: Mapping[str, Any]) -> None:
    if row["source"] == load.UNVERIFIED:
        assert "checked" not in row
        return
    assert len(row["source"]) >= 8
    assert datetime.date.fromisoformat(row["checked"]) <= datetime.date.today()
    for field in row.get("unverified", []):
        value: Any = row
        for part in field.split("."):
            value = value[part]  # a mark names a field that exists


def test_prices_were_checked_after_the_day_they_are_of() -> None:
    for row in knowledge.prices():
        assert row.as_of <= row.checked
        assert (row.checked - row.as_of).days < 180, "older than the tool itself accepts"
        assert row.sku in {facts.sku for facts in load.gpus()}


def test_published_training_rows_were_compared_with_their_sources() -> None:
    record = json.loads((ROOT / "results" / "published-training.json").read_text("utf-8"))
    assert datetime.date.fromisoformat(record["checked"].partition(":")[0])
    assert {row["source"] for row in record["rows"]} == set(record["sources"])
    assert len(record["rows"]) == 18  # as docs/sources.md says


def test_a_planner_names_the_fields_that_have_no_source(ctx: Context) -> None:
    h100, gh200 = load.gpu("H100-SXM"), load.gpu("GH200-96GB")
    assert h100 is not None
    assert gh200 is not None
    assert "unverified" not in lookup.sources(h100, None)[0].what
    assert "unverified: tdp_w" in lookup.sources(gh200, None)[0].what
    answer: Any = execute("aisp_recommend", {"goal": "memory", "workload": "training", "gpus": 2}, ctx).result
    by_field = {source["what"].partition(":")[0]: source["what"] for source in answer["sources"]}
    assert "unverified: effect" in by_field["zero-sharding"]
    assert "unverified" not in by_field["activation-checkpointing"]
    assert "estimate" in answer["band"]["zero-sharding"]["basis"]


def test_what_a_caller_describes_is_not_said_to_have_been_checked() -> None:
    described = {"layers": 2, "hidden": 64, "vocab": 100, "mlp": {"width": 128}}
    attention = {"heads": 2, "kv_heads": 2, "head_dim": 32, "layers": 2}
    assert lookup.sources(None, lookup.architecture(None, {**described, "attention": attention})) == []


def test_the_page_counts_what_the_tables_hold() -> None:
    page = (ROOT / "docs" / "sources.md").read_text("utf-8")
    for name, (_, rows) in TABLES.items():
        cells = next(line for line in page.splitlines() if line.startswith(f"| {name} |")).split("|")[3:-1]
        total, confirmed, corrected, lacking = map(int, cells)
        assert total == len(rows)
        assert lacking == len(provenance_tables.rows_without_source(rows))
        assert max(corrected, lacking) <= total - confirmed <= corrected + lacking
