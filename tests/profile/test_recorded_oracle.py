"""NVIDIA's own figures for the committed captures, recorded next to them: our tables are equal to the nanosecond."""

import nsys_stats
import oracle_tools
import pytest

from aisp_mcp.profile.readers import nsys
from aisp_mcp.profile.timeline import summarize


@pytest.mark.parametrize("name", oracle_tools.NSYS_CAPTURES)
def test_tables_equal_what_nsys_stats_said(name):
    trace = nsys.read(oracle_tools.DATA / name)
    oracle = oracle_tools.recorded(name)
    profile = nsys_stats.differences(oracle, summarize.profile(trace).timeline)
    assert [row["different"] for row in profile.values()] == [[]] * 4
    assert [profile[what]["compared"] for what in ("kernels", "api", "memory", "ranges")] == [
        len(oracle[report])
        for report in ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "nvtx_gpu_proj_sum")
    ]


def test_a_changed_nanosecond_is_seen():
    """The comparison itself can fail."""
    name = oracle_tools.NSYS_CAPTURES[0]
    oracle = oracle_tools.recorded(name)
    row = oracle["cuda_gpu_kern_sum"][0]
    row["Total Time (ns)"] = str(int(row["Total Time (ns)"]) + 1)
    profile = nsys_stats.differences(oracle, summarize.profile(nsys.read(oracle_tools.DATA / name)).timeline)
    assert len(profile["kernels"]["different"]) == 1
