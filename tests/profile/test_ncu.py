"""ncu pages: every number in base units, the limiter covers the plane, the roofline is the report's own."""

import csv
import gzip
import io

import oracle_tools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import PRODUCT
from simulate import ncu_csv

from aisp_mcp.errors import AispError
from aisp_mcp.profile import roofline
from aisp_mcp.profile.insights import limiter
from aisp_mcp.profile.readers import ncu
from aisp_mcp.profile.records import NcuKernel

RAW = oracle_tools.DATA / "five_kernels_h200.ncu-raw.csv.gz"
DETAILS = oracle_tools.DATA / "five_kernels_h200.ncu-details.csv.gz"


@pytest.fixture(scope="module")
def report():
    return ncu.read(RAW, DETAILS)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [("176.288", "us", (176288, "ns")), ("1,056", "", (1056, "")), ("213.188", "Kbyte/block", (213188, "byte/block")),
     ("3.957667", "Tbyte/s", (3.957667e12, "byte/s")), ("1.597162", "Ghz", (1.597162e9, "hz")), ("5", "%", (5, "%")),
     ("16", "byte/block", (16, "byte/block")),
     ("7.5", "cycle/nsecond", (7.5e9, "hz")), ("2", "Gbyte/second", (2e9, "byte/s")),
     ("PolicySpread", "", None), ("1.5.2", "", None), ("", "%", None)],
)  # fmt: skip
def test_units(text, unit, expected):
    result = ncu.base(text, unit)
    assert (result and (pytest.approx(result[0], rel=1e-12), result[1])) == expected or (
        result is None and expected is None
    )


def test_every_number_of_the_page_is_in_the_record(report):
    """An independent reading of the same page."""
    rows = list(csv.reader(io.StringIO(gzip.decompress(RAW.read_bytes()).decode())))
    scale = {"us": 1e3, "ms": 1e6, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    seen = 0
    for row, kernel in zip(rows[2:], report.kernels, strict=True):
        for name, unit, cell in zip(rows[0][11:], rows[1][11:], row[11:], strict=True):
            plain = cell.replace(",", "")
            if plain.replace(".", "").isdigit():
                factor = scale.get(unit) or (
                    scale[unit[0]] if unit[:1] in "KMGT" and unit[1:5] in ("byte", "hz", "hz/s") else 1
                )
                factor *= {"ns": 1e9, "us": 1e6, "ms": 1e3, "Kbyte": 1e3}.get(unit.partition("/")[2], 1)
                assert kernel.metrics[name] == pytest.approx(float(plain) * factor, rel=1e-9), name
                seen += 1
    assert seen > 30_000


def test_both_pages_agree(report):
    for raw, detailed in zip(report.kernels, ncu.read(DETAILS).kernels, strict=True):
        assert raw.name == detailed.name
        for name, value in detailed.metrics.items():
            assert value == pytest.approx(raw.metrics[name], rel=6e-3, abs=6e-3), name


def test_known_kernels_are_judged(report):
    bounds = {k.id: k.limiter.bound for k in report.kernels}
    assert bounds[2] == "compute-bound (tensor)"  # bf16 product of size 4096
    assert bounds[4] == "compute-bound (issue)"  # softmax
    assert bounds[5].startswith("memory-bound (device")  # element-wise
    assert bounds[7] == "memory-bound (L2)"  # transpose: sectors of 32 bytes of which 4 are used
    assert report.kernels[2].limiter.occupancy_limiter == "registers and shared memory"
    assert any(r.name == "UncoalescedGlobalAccess" and r.speedup > 80 for r in report.kernels[7].rules)


def test_the_product_stands_where_its_closed_form_says(report):
    point = roofline.points([report.kernels[2]])[0][0]
    assert point.flop_per_s == pytest.approx(2 * 4096**3 / 176.288e-6, rel=1e-4)
    assert point.side == "compute"
    assert point.of_roof == pytest.approx(0.9028, abs=1e-3)
    assert point.intensity == pytest.approx(point.flop_per_s / point.bytes_per_s)


def test_a_report_without_counters_is_named(tmp_path):
    kernel = ncu.read(ncu_csv(tmp_path / "r.csv", [{"name": "k", "gpu__time_duration.sum": 5.0}])).kernels[0]
    assert kernel.limiter is None
    assert roofline.points([kernel]) == ([], [0])


PERCENT = st.floats(0, 100)


@given(PERCENT, PERCENT, PERCENT, PERCENT, st.floats(0.01, 50), PERCENT, PERCENT)
@settings(max_examples=300)
def test_the_tree_covers_the_plane(sm, dram, l2, occupancy, waves, tensor, issue):
    metrics = {
        **{k: v for k, v in PRODUCT.items() if k != "name"},
        limiter.SM: sm, limiter.DRAM[0]: dram, limiter.L2: l2, limiter.OCCUPANCY: occupancy,
        limiter.WAVES: waves, limiter.TENSOR: tensor, limiter.ISSUE: issue,
    }  # fmt: skip
    result = limiter.judge(NcuKernel(id=0, name="k", metrics=metrics))
    assert result.bound
    assert result.why
    if max(sm, dram) >= 60:
        assert result.bound.startswith(("compute", "memory", "balanced"))


def test_thresholds_are_where_the_table_puts_them():
    def bound(**changes):
        return limiter.judge(
            NcuKernel(id=0, name="k", metrics={**{k: v for k, v in PRODUCT.items() if k != "name"}, **changes})
        ).bound

    low = {limiter.SM: 20.0, limiter.L2: 20.0, "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": 20.0}
    assert bound(**low, **{limiter.DRAM[0]: 60.0}) == "memory-bound (device memory)"
    assert bound(**low, **{limiter.DRAM[0]: 59.9}) == "near a roof"
    assert bound(**low, **{limiter.WAVES: 0.99}) == "grid-limited"
    assert bound(**{limiter.SM: 65.0, limiter.DRAM[0]: 62.0}) == "balanced"


def test_pages_of_different_reports_are_refused(tmp_path):
    other = ncu_csv(tmp_path / "r.csv", [PRODUCT])
    with pytest.raises(AispError) as caught:
        ncu.read(other, DETAILS)
    assert caught.value.code == "BAD_PROFILE"


def test_marks_follow_the_table(report):
    """A bf16 product and a transpose, as a reader of the table would mark them."""
    product, transpose = limiter.marks(report.kernels[2]), limiter.marks(report.kernels[7])
    tensor, dram = limiter.TENSOR, limiter.DRAM[0]
    assert (product[tensor], product[dram]) == ("good", "critical")
    assert (transpose[tensor], transpose[dram]) == ("critical", "critical")
    assert product["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"] == "good"
    assert transpose["smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"] == "critical"
