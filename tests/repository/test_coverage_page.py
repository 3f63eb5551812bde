"""docs/coverage.md says the truth: commands of rows that work parse, tools exist, and states are of the four."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from aisp_mcp.front.cli import arguments, commands
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_catalog, validate
from aisp_mcp.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
STATES = ("works", "partly", "not yet", "other way")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/coverage.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| feature"))
]
CODE = re.compile(r"`([^`]+)`")
COMMANDS = [code for row in ROWS for code in CODE.findall(row[1]) if code.startswith("aisp ")]
# What the first description lists. A tool that is not there yet is on the second list, which may only shrink.
_NAMES = """
triage status recommend ask run_benchmarks benchmark_targets list_chapters benchmark_report benchmark_export
benchmark_compare_runs benchmark_triage hw_speed hw_disk hw_pcie hw_cache hw_tc hw_network hw_roofline hw_p2p
hw_nccl hw_ib gpu_info gpu_bandwidth gpu_topology gpu_topology_matrix gpu_power system_software
system_dependencies system_context system_capabilities system_full context_summary context_full ai_status
profile_nsys profile_ncu profile_torch profile_hta profile_compare nsys_summary compare_nsys compare_ncu
profile_flame profile_memory profile_kernels profile_roofline analyze_bottlenecks analyze_pareto analyze_scaling
analyze_stacking analyze_whatif analyze_memory_patterns analyze_dataloader analyze_comm_overlap analyze_energy
optimize_roi optimize_techniques distributed_plan distributed_nccl launch_plan cluster_slurm predict_scaling
inference_vllm inference_quantization explain suggest_tools hf cost_estimate export_csv export_pdf export_html
job_status info_features
"""
EXPECTED = _NAMES.split()
NO_TOOLS = (["--list"], ["dashboard"], ["bench", "tui"])  # commands of the front, with tests of their own


@pytest.fixture(autouse=True, scope="module")
def shipped() -> None:
    load_catalog(dataclasses.replace(Settings.from_env({}), tool_modules=""))


def test_every_row_has_three_cells_and_one_of_the_states() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 3, row
        assert row[2].startswith(STATES), row
        assert CODE.search(row[1]) or row[2] == "not yet" or "AISP_" in row[1], row


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_parses(line: str) -> None:
    words = shlex.split(line)[1:]
    if words in NO_TOOLS:
        return
    tool, rest = commands.find(words)
    if "--help" in rest:
        rest.remove("--help")
        known = arguments.tool_parser(tool)._option_string_actions
        assert [word for word in rest if word.startswith("--") and word not in known] == []
    else:
        validate(tool, arguments.parse(tool, rest)[0])


def test_every_tool_of_the_page_exists() -> None:
    named = {code for row in ROWS for code in CODE.findall(row[1]) if code.startswith("aisp_")}
    assert named <= set(registry.names())


def test_every_make_target_of_the_page_exists() -> None:
    targets = {code.removeprefix("make ") for row in ROWS for code in CODE.findall(row[1]) if code.startswith("make ")}
    known = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if ":" in line}
    assert targets
    assert targets <= known


def test_no_wanted_tool_is_missing() -> None:
    assert len(EXPECTED) == len(set(EXPECTED)) == 72 + 1  # aisp_info_features is a second name that came later
    missing = {name for name in EXPECTED if f"aisp_{name}" not in registry.names()}
    assert missing == set()
