"""Layouts of a training run: which fit, how long a step takes, what the best one keeps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.datasheets.records import GpuFacts
from aisp_mcp.plan import lookup, parameters
from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.records.calibration import Calibration
from aisp_mcp.plan.records.plan import Planned
from aisp_mcp.plan.serving import model
from aisp_mcp.plan.training import memory, step
from aisp_mcp.plan.training.layout import Layout, candidates
from aisp_mcp.plan.training.memory import TrainingMemory
from aisp_mcp.plan.training.step import StepTime
from aisp_mcp.records import Record

USABLE = 0.92  # of device memory: the rest goes to context, communication buffers and fragmentation


class Choice(Record):
    """One layout with what it takes."""

    layout: Layout
    peak_bytes: int
    fits: bool
    step: StepTime | None = Field(default=None, description="None without a calibration for this GPU.")


class DistributedPlan(Record):
    """The fastest layout that fits, itemised; alternatives in order."""

    parameters: int
    active_parameters: int
    best: Choice
    memory: TrainingMemory
    usable_bytes: int
    alternatives: list[Choice]
    considered: int
    fitting: int


@dataclass(frozen=True)
class Task:
    """Model, machine and recipe of a training job to be laid out."""

    arch: Architecture
    facts: GpuFacts
    gpus: int
    per_node: int
    seq: int
    batch: int
    recipe: memory.Recipe
    network_bytes_s: float | None = None


def plan(task: Task, fixed: dict[str, int | bool]) -> Planned[DistributedPlan]:
    """fixed: fields of the layout that the caller has chosen. Raises UsageError NO_LAYOUT, DOES_NOT_FIT."""
    calibration = lookup.calibration(task.facts)
    found = [
        _choice(task, item, calibration)
        for item in candidates(task.arch, task.gpus, task.per_node, task.batch, task.seq)
        if all(getattr(item, name) == value for name, value in fixed.items())
    ]
    if not found:
        raise UsageError(
            "NO_LAYOUT",
            f"No layout divides {task.arch.layers} layers, {task.arch.attention.heads} heads and a batch of "
            f"{task.batch} over {task.gpus} GPUs as asked.",
            "Give a batch that the number of GPUs divides, or fix fewer sizes.",
        )
    ranked = sorted(found, key=_merit)
    best = ranked[0]
    if not best.fits:
        raise UsageError(
            "DOES_NOT_FIT",
            f"The smallest of {len(found)} layouts needs {min(c.peak_bytes for c in found) / model.GIB:.1f} GiB per "
            f"GPU; {_usable(task.facts) / model.GIB:.1f} GiB of {task.facts.sku} are usable.",
            "Use more GPUs, a shorter sequence, or a GPU with more memory.",
        )
    return _answer(task, best, ranked, calibration)


def _choice(task: Task, item: Layout, calibration: Calibration | None) -> Choice:
    workspace = calibration.workspace_bytes if calibration else 0
    peak = memory.training(task.arch, item, task.recipe, task.seq, workspace).peak_bytes
    return Choice(layout=item, peak_bytes=peak, fits=peak <= _usable(task.facts), step=_step(task, item, calibration))


def _step(task: Task, item: Layout, calibration: Calibration | None) -> StepTime | None:
    fabric = _fabric(task, calibration)
    if calibration is None or fabric is None:
        return None
    return step.time(task.arch, item, task.recipe, task.seq, task.facts, calibration, fabric)


def _fabric(task: Task, calibration: Calibration | None) -> step.Fabric | None:
    """None where a rate is missing: a card without a known link in a job of several GPUs."""
    if calibration is None:
        return None
    network = task.network_bytes_s or calibration.network_bytes_s
    if task.facts.link is None and task.gpus > 1:
        return None
    link = task.facts.link.per_direction_bytes_s if task.facts.link else network
    return step.Fabric(link=link, network=network, per_node=task.per_node)


def _usable(facts: GpuFacts) -> int:
    return int(model.memory_bytes(facts) * USABLE)


def _merit(choice: Choice) -> tuple[bool, float, int, int, int]:
    """Fitting ones first, then the shortest step; without times the least splitting and recomputing."""
    item = choice.layout
    time = choice.step.total_s if choice.step else float(item.checkpoint)
    return not choice.fits, time, item.tensor * item.pipeline * item.context, item.zero, choice.peak_bytes


def _answer(
    task: Task, best: Choice, ranked: Sequence[Choice], calibration: Calibration | None
) -> Planned[DistributedPlan]:
    workspace = calibration.workspace_bytes if calibration else 0
    kept = memory.training(task.arch, best.layout, task.recipe, task.seq, workspace)
    bands = {"memory.peak_bytes": lookup.band(calibration, "memory", kept.peak_bytes, "bytes")}
    if best.step is not None:
        bands["best.step.total_s"] = lookup.band(calibration, "step", best.step.total_s, "s")
    return Planned[DistributedPlan](
        result=DistributedPlan(
            parameters=parameters.total(task.arch),
            active_parameters=parameters.active(task.arch),
            best=best,
            memory=kept,
            usable_bytes=_usable(task.facts),
            alternatives=_different(ranked, best)[:3],
            considered=len(ranked),
            fitting=sum(choice.fits for choice in ranked),
        ),
        assumptions=_assumptions(task, calibration),
        band=lookup.bands(bands),
        not_modelled=lookup.first(
            "Memory: allocator fragmentation, NCCL buffers, the CUDA context (8 % of the device is kept for them).",
            "Time: data loading, stragglers, interleaved pipeline schedules, overlap of tensor-parallel collectives.",
            "Time: rings over all adapters of a node; gradients of several ranks in a node may cross that much faster.",
            None if calibration else lookup.no_times(task.facts),
            "Experts: balanced load, and all-to-all time is not counted." if task.arch.mlp.experts else None,
            "Recurrent layers count as attention layers do." if task.arch.recurrent else None,
        ),
        definitions={
            "mfu": "model FLOPs (6 per matrix parameter, causal attention counted half) / dense peak",
            "zero": "0 replicates, 1 shards optimizer state, 3 shards weights and gradients too (FSDP)",
            "peak_bytes": "live tensors of the fullest GPU (first pipeline stage) at the worst moment",
        },
        check_here="aisp distributed measure --layers 4 --hidden 1024 --heads 16 --seq 512",
        sources=lookup.sources(task.facts, task.arch, calibration),
    )


def _different(ranked: Sequence[Choice], best: Choice) -> list[Choice]:
    """The best of every other split that fits."""
    seen = {_key(best.layout)}
    choices = []
    for choice in ranked:
        if choice.fits and _key(choice.layout) not in seen:
            seen.add(_key(choice.layout))
            choices.append(choice)
    return choices


def _key(item: Layout) -> tuple[int, int, int, int]:
    return item.tensor, item.pipeline, item.context, item.data


def _assumptions(task: Task, calibration: Calibration | None) -> list[str]:
    recipe = task.recipe
    network = task.network_bytes_s or (calibration.network_bytes_s if calibration else None)
    crosses = task.gpus > task.per_node and network
    return lookup.first(
        f"Bytes per parameter: {recipe.weights} weights, {recipe.gradients} gradients, {recipe.optimizer} optimizer.",
        "Flash attention; sequence parallelism wherever tensors are split; gradients freed after each step.",
        "The batch is the whole job's, in sequences of the given length.",
        f"{network / 1e9:.0f} GB/s per GPU and direction between nodes." if crosses and network else None,
        f"{task.per_node} GPUs per node, joined by {task.facts.link.kind}." if task.facts.link else None,
    )
