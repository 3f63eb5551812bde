"""Totals, counts, extremes and medians must be those of NVIDIA's own tools, to the nanosecond."""

import csv
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import oracle_tools
import pytest

from aisp_mcp.profilers import ncu, nsys, record, timeline

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(300)]
CAPTURE = "train_step_h200.nsys.sqlite.gz"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    oracle_tools.tool("nsys")
    return oracle_tools.unpack(CAPTURE, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="module")
def ours(database):
    return timeline.profile(nsys.read(database)).timeline


EXAMPLES = "usr/share/doc/nsight-compute/examples"


@pytest.fixture(scope="module")
def reports():
    root = os.environ.get("AISP_ORACLE_ROOT")
    found = sorted((Path(root) / EXAMPLES).rglob("*.ncu-rep")) if root else []
    if not found:
        pytest.skip("NVIDIA's example reports are not here: set AISP_ORACLE_ROOT to the unpacked Debian package")
    return found


def test_ncu_program_and_module_agree(reports, tmp_path):
    """Both ways to a .ncu-rep, on NVIDIA's own examples: to 1e-6 where the page prints as many digits."""
    pytest.importorskip("ncu_report", reason="the package ncu-report is not installed")
    seen = 0
    for report in reports:
        folder = tmp_path / report.stem
        folder.mkdir()
        pages = record.read_ncu(oracle_tools.tool("ncu"), report, folder)
        module = record.read_ncu(None, report, folder)
        assert [k.grid for k in pages.kernels] == [k.grid for k in module.kernels]
        for page, exact in zip(pages.kernels, module.kernels, strict=True):
            assert page.limiter.bound == exact.limiter.bound
            for name in page.metrics.keys() & exact.metrics.keys():
                rounded = 5e-7 * max(1.0, _scale(folder / "report.raw.csv", name)) + 5e-3 * (
                    name not in _precise(folder)
                )
                assert page.metrics[name] == pytest.approx(exact.metrics[name], rel=1e-6, abs=rounded), (report, name)
                seen += 1
    assert seen > 2000


@cache
def _page(path):
    with path.open(newline="") as stream:
        rows = csv.reader(stream)
        return [next(rows) for _ in range(3)]


def _scale(path, name):
    """What one printed unit is worth: the page rounds after scaling."""
    header, units, _ = _page(path)
    return ncu.base("1", units[header.index(name)])[0]


def _precise(folder):
    """Metrics that the page prints with six decimals; it prints others with two."""
    header, _, row = _page(folder / "report.raw.csv")
    return {
        name for name, cell in zip(header, row, strict=True) if len(cell.rpartition(".")[2]) == 6 or "." not in cell
    }


def _theirs(rows, name, count):
    return {
        row[name]: (
            int(row[count]),
            int(row["Total Time (ns)"]),
            int(row["Min (ns)"]),
            int(row["Max (ns)"]),
            float(row["Med (ns)"]),
        )
        for row in rows
    }


def _mine(table):
    return {r.name: (r.count, r.total_ns, r.min_ns, r.max_ns, round(r.median_ns, 1)) for r in table}


def test_kernels_equal(database, ours):
    theirs = _theirs(oracle_tools.stats(database, "cuda_gpu_kern_sum"), "Name", "Instances")
    assert len(theirs) > 20
    assert _mine(ours.kernels) == theirs


def test_api_equal(database, ours):
    theirs = _theirs(oracle_tools.stats(database, "cuda_api_sum"), "Name", "Num Calls")
    assert len(theirs) > 10
    assert _mine(ours.api) == theirs


def test_memory_time_and_size_equal(database, ours):
    times = _theirs(oracle_tools.stats(database, "cuda_gpu_mem_time_sum"), "Operation", "Count")
    found = defaultdict(lambda: [0, 0, 10**18, 0, 0])
    for row in ours.memory:
        one = found[row.name.partition("]")[0] + "]"]
        one[0] += row.count
        one[1] += row.total_ns
        one[2] = min(one[2], row.min_ns)
        one[3] = max(one[3], row.max_ns)
        one[4] += row.bytes
    assert {name: tuple(one[:4]) for name, one in found.items()} == {n: t[:4] for n, t in times.items()}
    sizes = oracle_tools.stats(database, "cuda_gpu_mem_size_sum")
    assert {r["Operation"] for r in sizes} == set(found)
    for row in sizes:
        assert float(row["Total (MB)"]) == pytest.approx(found[row["Operation"]][4] / 1e6, abs=6e-4)


def test_projection_of_ranges_equal(database, ours):
    theirs = {r["Range"].lstrip(":"): r for r in oracle_tools.stats(database, "nvtx_gpu_proj_sum")}
    assert len(theirs) >= 6
    mine = {r.name: r for r in ours.ranges}
    for name, row in theirs.items():
        assert mine[name].projected_ns == int(row["Total Proj Time (ns)"]), name
        assert mine[name].operations == int(row["Total GPU Ops"]), name
