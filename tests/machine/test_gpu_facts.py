"""The table of GPU facts agrees with itself, with arithmetic, and with nobody's wishes."""

from __future__ import annotations

import datetime

import pytest

from aisp_mcp.machine.datasheets import load

ROWS = {row.sku: row for row in load.gpus()}
# SM or CU counts that no source confirmed: without them there is no closed form, and the row says so.
WITHOUT_FORMULA = {"B100-SXM", "GB200", "GB300", "H20"}


@pytest.mark.parametrize("sku", sorted(ROWS))
def test_the_bf16_peak_is_units_times_clock(sku: str) -> None:
    row = ROWS[sku]
    if row.formula is None:
        assert sku in WITHOUT_FORMULA
        assert row.confidence != "high"
        assert "not verified" in (row.note or "")
        return
    computed = row.formula.units * row.formula.fma_per_clock * 2 * row.formula.clock_mhz / 1e6
    assert computed == pytest.approx(row.peak["fp16"].dense, rel=0.005)
    # a derived clock proves nothing, so it must at least be a clock that silicon runs at, and is not called high
    assert 1000 < row.formula.clock_mhz < 2700
    assert row.formula.clock == "published" or row.confidence != "high"


@pytest.mark.parametrize("sku", sorted(ROWS))
def test_tensor_cores_per_multiprocessor(sku: str) -> None:
    row = ROWS[sku]
    if row.formula is not None and row.sm_count is not None:
        assert row.formula.units == (8 if row.architecture in ("Volta", "Turing") else 4) * row.sm_count


@pytest.mark.parametrize("sku", sorted(ROWS))
def test_dtypes_scale_as_the_hardware_does(sku: str) -> None:
    peak = ROWS[sku].peak
    assert "bf16" not in peak or peak["fp16"].dense == peak["bf16"].dense
    if "tf32" in peak:
        assert peak["tf32"].dense == pytest.approx(peak["bf16"].dense / 2, rel=0.02)
    if "fp8" in peak:
        assert peak["fp8"].dense == pytest.approx(2 * peak["bf16"].dense, rel=0.02)
    for value in peak.values():
        assert value.sparse is None or value.sparse == pytest.approx(2 * value.dense, rel=0.01)


@pytest.mark.parametrize("sku", sorted(ROWS))
def test_memory_is_bytes_and_plausible(sku: str) -> None:
    memory = ROWS[sku].memory
    assert 2e11 <= memory.bandwidth_bytes_s <= 8e12
    if memory.reported_bytes is not None:
        # sold in GB or GiB, reported less or more by what firmware takes: within 10 %
        assert memory.reported_bytes == pytest.approx(memory.sold_gb * 1e9, rel=0.10)


def test_every_row_has_source_date_and_confidence() -> None:
    for row in ROWS.values():
        assert len(row.source) > 10
        assert datetime.date.fromisoformat(row.checked) <= datetime.date.today()


def test_the_table_spans_the_field() -> None:
    assert len(ROWS) >= 18
    expected = {"B300-SXM", "B200-SXM", "GB200", "GB300", "H200-SXM", "H100-SXM", "H100-PCIe", "H100-NVL", "L40S", "L4"}
    expected |= {"A100-SXM-80GB", "RTX-4090", "RTX-5090", "MI300X", "MI325X", "MI355X"}
    assert expected <= set(ROWS)


@pytest.mark.parametrize(
    ("name", "sku"),
    [
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Server"),
        ("AMD Instinct MI300X", "MI300X"),
        ("h200-sxm", "H200-SXM"),
    ],
)
def test_names_as_drivers_write_them(name: str, sku: str) -> None:
    facts = load.gpu(name)
    assert facts is not None
    assert facts.sku == sku


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H200 MIG 1g.18gb",
        "H100",
        "A100",
        "NVIDIA RTX 6000",
        "Tesla K80",
        "",
    ],
)
def test_an_unknown_card_has_no_facts(name: str) -> None:
    assert load.gpu(name) is None


def test_no_two_rows_answer_to_one_name() -> None:
    names = [alias for row in ROWS.values() for alias in row.names]
    assert len(names) == len(set(names))
    assert all(alias == load.normal(alias) for alias in names)


def test_a_refusal_names_similar_cards() -> None:
    assert {"H100-SXM", "H100-PCIe", "H100-NVL"} <= set(load.similar("H100"))


@pytest.mark.parametrize(
    ("sku", "ridge"),
    [("H100-SXM", 295.3), ("H200-SXM", 206.1), ("A100-SXM-80GB", 153.0), ("B200-SXM", 281.3), ("MI300X", 246.7)],
)
def test_ridge_points_of_the_literature(sku: str, ridge: float) -> None:
    row = ROWS[sku]
    assert row.peak["bf16"].dense * 1e12 / row.memory.bandwidth_bytes_s == pytest.approx(ridge, rel=0.002)


def test_blackwell_is_2_27_times_hopper_and_not_1_14() -> None:
    assert ROWS["B200-SXM"].peak["bf16"].dense / ROWS["H100-SXM"].peak["bf16"].dense == pytest.approx(2.27, rel=0.005)


def test_capabilities_cover_every_nvidia_row() -> None:
    known = load.capabilities()
    for row in ROWS.values():
        if row.vendor == "nvidia":
            assert row.compute_capability in known
            assert ("fp8" in row.peak) <= ("fp8" in known[row.compute_capability].precisions)
    assert known["9.0"].shared_bytes_per_block == 227 * 1024
    assert known["10.3"].architecture != known["10.0"].architecture


@pytest.mark.parametrize(
    ("name", "sku"),
    [
        ("H20", "H20"), ("H800", "H800-SXM"), ("L40", "L40"), ("A40", "A40"), ("T4", "T4"), ("V100", "V100-SXM-32GB"),
        ("H200 NVL", "H200-NVL"), ("MI350X", "MI350X"), ("MI250X", "MI250X"), ("RTX 6000 Ada", "RTX-6000-Ada"),
        ("RTX PRO 6000", "RTX-PRO-6000-Server"), ("GB10", "GB10"), ("4090", "RTX-4090"), ("A100-40GB", "A100-SXM-40GB"),
        ("nvidia-h100-80gb", "H100-SXM"), ("H100", "H100-SXM"), ("A100 PCIe", "A100-PCIe-80GB"), ("A6000", "RTX-A6000"),
        ("GH200", "GH200-96GB"), ("GH200 480GB", "GH200-96GB"), ("HGX B200", "B200-SXM"), ("B100", "B100-SXM"),
        ("A100-PCIE-40GB", "A100-PCIe-40GB"), ("V100S", "V100S-PCIe-32GB"), ("MI350", "MI350X"), ("MI250", "MI250"),
        ("Rubin", None), ("H200 MIG 1g.18gb", None), ("RTX 4090 D", None), ("H100-96GB", None), ("gb", None),
    ],
)  # fmt: skip
def test_names_as_people_type_them(name: str, sku: str | None) -> None:
    row = load.named(name)
    assert (row.sku if row else None) == sku
