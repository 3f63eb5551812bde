"""Energy of benchmark programs, measured with the GPU's own counter."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.energy.figures import Reading
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool
from aisp_mcp.suites.records import BenchRoots

_TIMEOUT_S = 900.0


class EnergyParams(JobParams):
    target: str = Field(max_length=200, description="Such as ch07:row_sum.")
    bench_root: BenchRoots = None


class Measured(Record):
    """One reading per program, stored for aisp_analyze_energy and aisp_analyze_metrics."""

    programs: list[Reading]
    definition: str


def _plan(p: EnergyParams, ctx: Context) -> Plan:
    from aisp_mcp.runs.energy import readings
    from aisp_mcp.suites import selection
    from aisp_mcp.system.gpu.nvml import gpu_uuids

    pairs, _ = selection.pairs(ctx.bench_roots(p.bench_root), [p.target])
    readings.require_counter()
    resources = [f"gpu:{uuid}" for uuid in gpu_uuids()]
    details = {"programs": len(pairs) + len({pair.target for pair in pairs})}
    return Plan(argv=[], timeout_s=p.timeout_s or _TIMEOUT_S, resources=resources, details=details)


@tool(
    cli="bench energy", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=_TIMEOUT_S, measures=True),
    needs=("gpu", "torch"), next=("aisp_analyze_energy", "aisp_analyze_pareto"), estimate=_plan,
)  # fmt: skip
def aisp_measure_energy(p: EnergyParams, ctx: Context) -> Measured:
    """Measure joules per call of a target's programs with the GPU's energy counter, and keep them."""
    import secrets

    from aisp_mcp.runs.energy import figures, readings
    from aisp_mcp.server.text.numbers import rounded

    readings.require_counter()
    folder = ctx.run_dir or ctx.settings.home / "profiles" / secrets.token_hex(8)
    rows = readings.measure(ctx, p.target, ctx.bench_roots(p.bench_root), folder, 0.9 * (p.timeout_s or _TIMEOUT_S))
    return rounded(Measured(programs=figures.ranked(rows), definition=figures.DEFINITION))
