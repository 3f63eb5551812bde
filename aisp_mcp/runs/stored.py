"""Stored runs as input of analyses: the newest ones, with shares of measured ceilings and energy."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.profile.roofline import dtype, tensors
from aisp_mcp.runs.analysis.variants import BASELINE, MeasuredPair, Range, pairs
from aisp_mcp.runs.energy import figures
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import OF_TARGETS, RunKind
from aisp_mcp.system import cpu

ENERGY = "energy:"  # measurements of this kind are readings of one program
_KINDS = ("copy", "read", "write", "triad")


def runs(
    ctx: Context, run_id: str | None, limit: int, kinds: Sequence[RunKind] = (*OF_TARGETS, RunKind.VERIFY)
) -> list[Run]:
    """The named run, or the newest ones of these kinds. Raises NotFound UNKNOWN_RUN, Unavailable NOTHING_STORED."""
    if run_id is not None:
        return [ctx.store.run(Run, run_id, ctx.sees)]
    stored = [ctx.store.run(Run, name, ctx.sees) for name in ctx.store.run_ids(limit, ctx.sees, kinds)]
    if not stored:
        raise nothing("No run is stored.")
    return stored


def nothing(message: str) -> Unavailable:
    """The refusal if nothing is stored, with the call that remedies it."""
    return Unavailable(
        "NOTHING_STORED",
        message,
        "Measure pairs first; every run is stored and can be analysed afterwards.",
        [("aisp_run_benchmarks", {"targets": ["*"]}), ("aisp_benchmark_targets", {})],
    )


def measured(ctx: Context, run_id: str | None, limit: int) -> tuple[list[MeasuredPair], list[str]]:
    """Pairs of the named run, or of the newest ones, with all known facts.

    Provisional verdicts count only in a named run. Raises Unavailable NOTHING_STORED.
    """
    chosen = runs(ctx, run_id, limit)
    rows, left_out = pairs(chosen, shares(ctx, chosen), energies(ctx), provisional=run_id is not None)
    if not rows:
        raise nothing("No stored run contains a comparison with correct outputs and times." + _why(left_out))
    return rows, left_out


def _why(left_out: Sequence[str]) -> str:
    return f" Left out: {'; '.join(left_out[:3])}." if left_out else ""


def shares(ctx: Context, all_runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    """(run id, program) → share of this machine's measured roof, if work and ceiling are known."""
    rows: dict[tuple[str, str], float] = {}
    ceilings = Ceilings(ctx)
    for run in all_runs:
        for comparison in run.comparisons:
            for name, (compute, memory) in ceilings.shares(run, comparison).items():
                known = [share for share in (compute, memory) if share is not None]
                if known:
                    rows[run.id, name] = max(known)
    return rows


def programs(comparison: Comparison) -> list[tuple[str, Figures]]:
    """Both programs of a comparison that have times, by name."""
    named = [(f"{comparison.identity} {BASELINE}", comparison.baseline), (comparison.known_as, comparison.optimized)]
    return [(name, figures) for name, figures in named if figures is not None]


class Ceilings:
    """The best stored rates of each device, looked up once."""

    def __init__(self, ctx: Context) -> None:
        self._store = ctx.store
        self._best: dict[tuple[str, str], float | None] = {}

    def shares(self, run: Run, comparison: Comparison) -> dict[str, tuple[float | None, float | None]]:
        """Program → (share of the measured FLOP/s, share of the measured bytes/s) of the device of the run."""
        key = device_key(run)
        working = [
            (name, figures) for name, figures in programs(comparison) if figures.flops_per_s or figures.bytes_per_s
        ]
        if key is None or not working:
            return {name: (None, None) for name, _ in programs(comparison)}
        unit = dtype(comparison)
        peak = self._of(f"gemm_{unit}", key) if unit else None
        bandwidth = max((rate for kind in _KINDS if (rate := self._of(f"bandwidth_{kind}", key))), default=None)
        return {
            name: (
                figures.flops_per_s / peak if figures.flops_per_s and peak else None,
                figures.bytes_per_s / bandwidth if figures.bytes_per_s and bandwidth else None,
            )
            for name, figures in programs(comparison)
        }

    def _of(self, kind: str, device: str) -> float | None:
        if (kind, device) not in self._best:
            ceiling = self._store.best_measurement(kind, device)
            self._best[kind, device] = ceiling.value if ceiling else None
        return self._best[kind, device]


def device_key(run: Run) -> str | None:
    """Key of the ceilings that apply to a run: its GPU's UUID, or cpu if this is the same processor."""
    if run.gpus:
        uuid: str | None = run.gpus[0].get("uuid")
        return uuid
    return "cpu" if run.host.get("cpu") == cpu.read().model else None


def maybe_runs(ctx: Context, run_id: str | None, limit: int) -> list[Run]:
    """The same, but none if the store is empty."""
    return runs(ctx, run_id, limit) if run_id is not None or ctx.store.run_ids(1, ctx.sees) else []


def no_energy() -> Unavailable:
    """The error if no energy was counted, with instructions for counting it."""
    return Unavailable(
        "NO_ENERGY",
        "No energy reading is stored: no program was measured with aisp_measure_energy, and no run saw a counter.",
        "Energy comes from a GPU's own counter (NVML, Volta or newer); without one there is no figure.",
        [("aisp_measure_energy", {"target": "ch07:row_sum"}), ("aisp_gpu_power", {})],
    )


def energies(ctx: Context) -> dict[tuple[str, str], Range]:
    """(machine, program) → joules per call."""
    return {(row.machine, row.name): row.per_call_j for row in readings(ctx)}


def readings(ctx: Context) -> list[figures.Reading]:
    """The newest energy reading of every program on every device."""
    rows = ctx.store.newest_measurements(ENERGY)
    return [figures.Reading.model_validate({**row.detail, "measured_at": row.measured_at}) for row in rows]


def elements(comparison: Comparison) -> int | None:
    """Elements of the largest input tensor; None without a readable log."""
    return max((count for _, count, _ in tensors(comparison, "inputs")), default=None)
