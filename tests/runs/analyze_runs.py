"""Hand-made run records: times, ratios and memory that a reader can compute with."""

from __future__ import annotations

import json
from pathlib import Path

from aisp_mcp.judge.records.measurement import Figures, Interval, Memory
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.store.records.run import Run

GPU = {"name": "NVIDIA H200", "uuid": "GPU-1"}


def side(time_s: float, memory: int | None = None, work: tuple[float, float] = (0.0, 0.0)) -> Figures:
    return Figures(
        processes=5, rounds=20, calls=400, time_s=time_s, p50_s=time_s, p95_s=time_s, parent_time_s=time_s,
        flops_per_s=work[0] / time_s or None, bytes_per_s=work[1] / time_s or None,
        memory=Memory(device_peak_allocated=memory),
    )  # fmt: skip


def pair(
    variant: str = "",
    ratio: float = 2.0,
    width: float = 0.02,
    memory: tuple[int | None, int | None] = (None, None),
    *,
    target: str = "ch01:a",
    base_s: float = 1e-3,
    floor: float = 0.01,
    work: tuple[float, float] = (0.0, 0.0),
    verdict: Verdict = Verdict.FASTER,
    log: Path | None = None,
) -> Comparison:
    """A candidate `ratio` times as fast as a baseline of base_s seconds; its interval is ratio / or * (1 + width)."""
    return Comparison(
        target=target, candidate=variant, verdict=verdict, sentence=verdict.value, ratio=ratio,
        interval=Interval(low=ratio / (1 + width), high=ratio * (1 + width)), noise_floor=floor, margin=0.02,
        baseline=side(base_s, memory[0], work), optimized=side(base_s / ratio, memory[1], work),
        isolation="L1", replicates=5, log_path=str(log) if log else None,
    )  # fmt: skip


def run_of(*comparisons: Comparison, run_id: str = "r_1", gpu: dict[str, str] | None = None, **during: object) -> Run:
    gpus = [gpu] if gpu else []
    environment = {"host": {"cpu": "test cpu"}, "gpus": gpus, "during": {"seconds": 8.0, "gpus": [], **during}}
    return Run(
        id=run_id, created_at=1.7e9, preset="default", profile="portable", environment=environment,
        comparisons=list(comparisons),
    )  # fmt: skip


def log_of(folder: Path, name: str, shape: list[int]) -> Path:
    """A raw log whose first line says the shape of the input."""
    layout = {"params": [], "inputs": [{"name": "a", "dtype": "float32", "shape": shape, "itemsize": 4}]}
    path = folder / f"{name}.rounds.jsonl"
    path.write_text(json.dumps({"kind": "open", "opened": {"layout": layout}}) + "\n")
    return path
