"""`nsys stats` over an export, and where our tables differ from it."""

from __future__ import annotations

import csv
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from aisp_mcp.profile.records import Timeline

REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "nvtx_gpu_proj_sum")
_TIMES = ("Total Time (ns)", "Min (ns)", "Max (ns)", "Med (ns)")
Oracle = dict[str, list[dict[str, str]]]


def ask(program: str, database: Path) -> Oracle:
    """Every report's rows, as nsys writes them. Raises RuntimeError with nsys's words where a report fails."""
    return {report: _rows(program, database, report) for report in REPORTS}


def _rows(program: str, database: Path, report: str) -> list[dict[str, str]]:
    argv = [program, "stats", "--report", report, "--format", "csv", "--output", "-", str(database)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.count(",") > 3), None)
    if first is None:
        if "ERROR" not in done.stdout + done.stderr and done.returncode == 0:
            return []  # nothing of this kind was recorded, which nsys says by silence or by SKIPPED
        raise RuntimeError(f"nsys stats {report}: {(done.stdout + done.stderr)[-500:]}")
    return list(csv.DictReader(lines[first:]))


def columns(oracle: Oracle) -> dict[str, list[tuple[str, ...]]]:
    """The columns that are compared; others, such as the percentages, are rounded differently by version."""
    expected = ("Name", "Operation", "Range", "Instances", "Num Calls", "Count", *_TIMES, "Total Proj Time (ns)")
    return {
        report: sorted(tuple(f"{row[name]}".lstrip(":") for name in expected if name in row) for row in rows)
        for report, rows in oracle.items()
    }


def differences(oracle: Oracle, table: Timeline) -> dict[str, Any]:
    """Per report: rows compared, and the names that differ in count, total, minimum, maximum, median, bytes."""
    return {
        "kernels": _compare(_theirs(oracle["cuda_gpu_kern_sum"], "Name", "Instances"), _mine(table.kernels)),
        "api": _compare(_theirs(oracle["cuda_api_sum"], "Name", "Num Calls"), _mine(table.api)),
        "memory": _compare(*_memory(oracle, table)),
        "ranges": _compare(*_ranges(oracle, table)),
    }


def _compare(theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    odd = sorted(name for name in theirs.keys() | mine.keys() if theirs.get(name) != mine.get(name))
    return {"compared": len(theirs), "different": [[name, theirs.get(name), mine.get(name)] for name in odd[:5]]}


def _theirs(rows: list[dict[str, str]], name: str, count: str) -> dict[str, Any]:
    return {row[name]: tuple(float(row[column]) for column in (count, *_TIMES)) for row in rows}


def _mine(rows: Any) -> dict[str, Any]:
    return {r.name: (r.count, r.total_ns, r.min_ns, r.max_ns, round(r.median_ns, 1)) for r in rows}


def _memory(oracle: Oracle, table: Timeline) -> tuple[dict[str, Any], dict[str, Any]]:
    """nsys has one row per direction, we have one per direction and kinds of memory; megabytes have three decimals."""
    sizes = {row["Operation"]: float(row["Total (MB)"]) for row in oracle["cuda_gpu_mem_size_sum"]}
    theirs = {
        row["Operation"]: (
            *(int(row[c]) for c in ("Count", "Total Time (ns)", "Min (ns)", "Max (ns)")), sizes[row["Operation"]],
        )
        for row in oracle["cuda_gpu_mem_time_sum"]
    }  # fmt: skip
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in table.memory:
        groups[row.name.partition("]")[0] + "]"].append(row)
    mine = {
        name: (
            sum(r.count for r in rows), sum(r.total_ns for r in rows), min(r.min_ns for r in rows),
            max(r.max_ns for r in rows), _printed(sum(r.bytes or 0 for r in rows) / 1e6, sizes.get(name)),
        )
        for name, rows in groups.items()
    }  # fmt: skip
    return theirs, mine


def _printed(exact: float, theirs: float | None) -> float:
    """Their figure where ours rounds to it: the last digit of a half depends on who rounds."""
    return theirs if theirs is not None and abs(exact - theirs) <= 5.001e-4 else exact


def _ranges(oracle: Oracle, table: Timeline) -> tuple[dict[str, Any], dict[str, Any]]:
    theirs = {
        row["Range"].lstrip(":"): (int(row["Total Proj Time (ns)"]), int(row["Total GPU Ops"]))
        for row in oracle["nvtx_gpu_proj_sum"]
    }
    return theirs, {r.name: (r.projected_ns, r.operations) for r in table.ranges if r.name in theirs}
