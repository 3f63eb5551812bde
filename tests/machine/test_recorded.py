"""Records of real cards: free of what identifies a machine, and one with itself and the table of facts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.probes.records import Collectives, Hierarchy, Placed, Roofline, RooflinePoint

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "results").glob("h200*.json"))
IDENTIFYING = re.compile(r"GPU-[0-9a-f]{8}-|\b(?:[0-9a-f]{4}){1,2}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9]|/(?:home|root|tmp)/")


def record(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "results" / name).read_text())
    return document


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_nothing_names_a_machine(path: Path) -> None:
    assert IDENTIFYING.findall(path.read_text()) == []


def test_the_scrubber_takes_out_what_names_a_machine() -> None:
    sys.path.insert(0, str(ROOT / "validation"))
    try:
        import scrub
    finally:
        sys.path.pop(0)
    uuid, home = "GPU-01234567-89ab-cdef-0123-456789abcdef", "home/someone"
    scrubbed = scrub.text(
        {uuid: {"bus_id": "00000000:0A:06.0", "chart": f"/{home}/.local/x.svg", "uuids": f"{uuid},{uuid}"}}
    )
    assert json.loads(scrubbed) == {"GPU": {"bus_id": "BUS", "chart": "PATH", "uuids": "GPU,GPU"}}


def test_every_recorded_ratio_is_that_of_its_rates() -> None:
    document = record("h200-probes.json")
    for row in document["rows"]:
        assert row["ratio"] == pytest.approx(row["value"] / row["reference"], abs=1e-4)
        assert len(row["turns"]["probe"]) == len(row["turns"]["reference"])
    assert document["below_0.98"] == [row["probe"] for row in document["rows"] if row["ratio"] < 0.98]
    assert {row["probe"].split()[0] for row in document["rows"]} == {"gemm", "bandwidth", "attention", "pcie"}


def test_recorded_rates_are_placed_against_the_table_of_facts() -> None:
    facts = load.gpu(record("h200-probes.json")["device"])
    assert facts is not None
    tools = record("h200-probes.json")["tools"]
    for row in tools["aisp_hw_tc"]["results"]:
        placed = Placed(**row)
        assert placed.spec is not None
        peak = facts.peak["fp64_tensor" if placed.name == "fp64" else placed.name].dense * 1e12
        assert placed.spec.value == pytest.approx(peak)
        assert placed.spec.share == pytest.approx(placed.rate.median / peak, abs=1e-4)
        assert placed.rate.low <= placed.rate.median <= placed.rate.high < peak
        assert "without a pause" in str(placed.note)


def test_recorded_answers_fit_the_models_of_today() -> None:
    tools = record("h200-probes.json")["tools"]
    roofline = Roofline(device_id="GPU", **{k: v for k, v in tools["aisp_hw_roofline"].items() if k != "ms"})
    assert all(isinstance(point, RooflinePoint) and point.share_of_roof <= 1 for point in roofline.points)
    levels = Hierarchy(device_id="GPU", **{k: v for k, v in tools["aisp_hw_cache"].items() if k != "ms"}).levels
    latency = [level.latency_ns.median for level in levels if level.latency_ns]
    assert latency[0] < 30 < latency[len(latency) // 2] < latency[-1]


def test_the_recorded_collectives_stay_below_the_links_without_multicast() -> None:
    links = record("h200x2-links.json")
    collectives = Collectives(**links["aisp_hw_nccl"])
    assert collectives.backend == "nccl"
    assert collectives.link_bytes_s == 450e9
    sizes = [row.bytes for row in collectives.rows if row.name == "all_reduce"]
    assert sizes == [1024 * 4**n for n in range(11)]
    assert all(0 < row.busbw.median < collectives.link_bytes_s for row in collectives.rows)
    assert links["p2p_ratio"] >= 0.98
