"""Totals, counts, extremes and medians must be those of NVIDIA's own tools, to the nanosecond."""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import nvidia

from aisp_mcp.profilers import nsys, timeline

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(300)]
CAPTURE = "train_step_h200.nsys.sqlite.gz"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    nvidia.tool("nsys")
    return nvidia.unpack(CAPTURE, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="module")
def ours(database):
    return timeline.profile(nsys.read(database)).timeline


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
    theirs = _theirs(nvidia.stats(database, "cuda_gpu_kern_sum"), "Name", "Instances")
    assert len(theirs) > 20
    assert _mine(ours.kernels) == theirs


def test_api_equal(database, ours):
    theirs = _theirs(nvidia.stats(database, "cuda_api_sum"), "Name", "Num Calls")
    assert len(theirs) > 10
    assert _mine(ours.api) == theirs


def test_memory_time_and_size_equal(database, ours):
    times = _theirs(nvidia.stats(database, "cuda_gpu_mem_time_sum"), "Operation", "Count")
    found = defaultdict(lambda: [0, 0, 10**18, 0, 0])
    for row in ours.memory:
        one = found[row.name.partition("]")[0] + "]"]
        one[0] += row.count
        one[1] += row.total_ns
        one[2] = min(one[2], row.min_ns)
        one[3] = max(one[3], row.max_ns)
        one[4] += row.bytes
    assert {name: tuple(one[:4]) for name, one in found.items()} == {n: t[:4] for n, t in times.items()}
    sizes = nvidia.stats(database, "cuda_gpu_mem_size_sum")
    assert {r["Operation"] for r in sizes} == set(found)
    for row in sizes:
        assert float(row["Total (MB)"]) == pytest.approx(found[row["Operation"]][4] / 1e6, abs=6e-4)


def test_projection_of_ranges_equal(database, ours):
    theirs = {r["Range"].lstrip(":"): r for r in nvidia.stats(database, "nvtx_gpu_proj_sum")}
    assert len(theirs) >= 6
    mine = {r.name: r for r in ours.ranges}
    for name, row in theirs.items():
        assert mine[name].projected_ns == int(row["Total Proj Time (ns)"]), name
        assert mine[name].operations == int(row["Total GPU Ops"]), name
