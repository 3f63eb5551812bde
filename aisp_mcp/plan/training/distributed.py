"""Layouts of a training run: those that fit, the time of a step, and the memory of the best one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import lookup, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.cluster.collectives import Fabric
from aisp_mcp.plan.own import Calibrated
from aisp_mcp.plan.records import Band, Planned
from aisp_mcp.plan.training import calibration, layout, memory, step
from aisp_mcp.plan.training.layout import Layout, candidates, most_layers
from aisp_mcp.plan.training.memory import TrainingMemory
from aisp_mcp.plan.training.recipe import Recipe
from aisp_mcp.plan.training.step import StepTime
from aisp_mcp.records import Record

USABLE = 0.92  # of device memory: the rest is for context, communication buffers and fragmentation
MARGIN = 0.06  # of the usable memory; with USABLE 14 % of the device, where frameworks reserve 10 % beyond live tensors
STRETCH = 2  # fine-tuning stretches rotary positions: MLPerf tunes Llama 2 at twice its published context
GIB = 1 << 30
ALTERNATIVES = 3


class Choice(Record):
    """One layout with its memory and time."""

    layout: Layout
    peak_bytes: int
    fits: bool
    step: StepTime | None = Field(default=None, description="None without a calibration for this GPU and type.")
    stack: str = Field(default=calibration.TUNED, description="Software that this time and memory are calibrated for.")


class DistributedPlan(Record):
    """The fastest layout that fits, itemised; alternatives in order."""

    headline: str
    parameters: int
    active_parameters: int
    best: Choice
    dominant: str = Field(description="Largest part of the step, and what would change the plan.")
    memory: TrainingMemory
    usable_bytes: int
    alternatives: list[Choice]
    considered: int = Field(description="Layouts; those that cannot be among the answers are not worked out.")
    calibrated: list[Calibrated] = Field(default=[], description="Figures corrected by own runs of this model and GPU.")


@dataclass(frozen=True)
class Task:
    """Model, machine and recipe of a training job."""

    arch: Architecture
    facts: GpuFacts
    gpus: int
    per_node: int
    seq: int
    batch: int
    recipe: Recipe
    network_bytes_s: float | None = None
    stack: str = calibration.TUNED


def plan(task: Task, fixed: dict[str, int | str], stack: str | None = None) -> Planned[DistributedPlan]:
    """The best layout. fixed: fields of the layout that the caller has chosen; stack None: what most people run.

    Raises UsageError NO_LAYOUT, DOES_NOT_FIT, CONTEXT_LIMIT, Unavailable NO_PEAK.
    """
    lookup.require_dtype(task.facts, [task.recipe.compute])
    lookup.require_context(task.arch, task.seq, STRETCH if task.recipe.lora_rank else 1)
    if stack is None and default_stack(task, fixed) == "eager":
        return _eager(task, fixed)
    return _planned(_with_stack(task, stack or default_stack(task, fixed)), fixed)


SPLITS = ("tensor", "pipeline", "context", "expert")


def default_stack(task: Task, fixed: Mapping[str, int | str]) -> str:
    """The stack that most people run: uncompiled transformers where a dense model in 16 bits needs no split."""
    small, splits = task.recipe.compute in ("fp8", "fp4"), any(int(fixed.get(name, 1)) > 1 for name in SPLITS)
    if task.arch.mlp.experts:
        return "nemo" if fixed.get("zero") == 3 and not small else calibration.TUNED
    if not small and not splits:
        return "eager"
    return "torchtitan" if fixed.get("zero") == 3 else calibration.TUNED


def _with_stack(task: Task, name: str) -> Task:
    return replace(task, stack=name, recipe=_recipe(task.recipe, name))


@lru_cache(maxsize=64)
def _recipe(recipe: Recipe, stack: str) -> Recipe:
    """The recipe as the stack stores it; the same object for the same question, which searches look figures up by."""
    row = calibration.stack(stack)
    names = ("keeps_gathered", "unfused", "torch_weights")
    return recipe.model_copy(update={"logits": row.logit_bytes, **{name: getattr(row, name) for name in names}})


def _eager(task: Task, fixed: dict[str, int | str]) -> Planned[DistributedPlan]:
    """The plan without a split of the model, and the best tuned one beside it; that alone where nothing else fits."""
    tuned = _with_stack(task, calibration.TUNED)
    try:
        planned = _planned(_with_stack(task, "eager"), fixed)
    except UsageError as error:
        if error.code not in ("NO_LAYOUT", "DOES_NOT_FIT"):
            raise
        return _planned(tuned, fixed)
    if not planned.answer.best.fits or task.gpus == 1 or planned.answer.best.step is None:
        return planned
    try:
        other = _planned(tuned, fixed, 1).answer.best
    except UsageError:
        return planned
    others = [*planned.answer.alternatives, *([other] if other.fits else [])]
    return planned.model_copy(update={"answer": planned.answer.model_copy(update={"alternatives": others})})


def _planned(task: Task, fixed: dict[str, int | str], most: int = ALTERNATIVES + 1) -> Planned[DistributedPlan]:
    """The best layout with one stack, and `most` - 1 others."""
    if not calibration.stack(task.stack).splits:
        wrong = next((name for name in SPLITS if int(fixed.get(name, 1)) > 1), None)
        if wrong:
            raise UsageError(
                "NO_LAYOUT",
                f"Stack {task.stack} trains whole models on every GPU or shards them; {wrong} needs another stack.",
                "Use stack=torchtitan, megatron or nemo.",
            )
        fixed = {**fixed, **dict.fromkeys(SPLITS, 1)}
    modes = [mode for mode in layout.RECOMPUTES if mode == fixed.get("recompute", mode)]
    least = fixed | {"recompute": modes[0]}
    layouts = list(candidates(task.arch, task.gpus, task.per_node, task.batch, task.seq, least))
    if not layouts:
        raise UsageError("NO_LAYOUT", *layout.excluded_reason(task.arch, task.gpus, task.per_node, task.batch, fixed))
    job = step_job(task)
    ranked = search(task, layouts, modes, job, most)
    if ranked[0].fits:
        ranked = _with_fsdp(_simplest(ranked, task, layouts, modes, job), task, layouts, modes, job)
    best = ranked[0]
    if not best.fits and fixed.keys() <= set(SPLITS) and all(fixed[name] == 1 for name in fixed):
        raise UsageError(
            "DOES_NOT_FIT",
            f"The smallest of {len(layouts) * len(modes)} layouts needs {best.peak_bytes / GIB:.1f} GiB per "
            f"GPU; {_limit(task.facts) / GIB:.1f} GiB of {task.facts.sku} may be planned.",
            "Use more GPUs, a shorter sequence, --offload, or a GPU with more memory. Fix a size to see its memory.",
        )
    return _answer(task, ranked, job, len(layouts) * len(modes))


def _simplest(
    ranked: list[Choice], task: Task, layouts: Sequence[Layout], modes: Sequence[str], job: step.StepJob | None
) -> list[Choice]:
    """The answers, first the simplest that the fastest one does not beat by more than the band of its time."""
    band = calibration.band(task.facts, task.recipe.compute, task.stack)
    if job is None or band is None:
        return ranked
    longest = _seconds(ranked[0]) * band.of(task.arch.mlp.experts is not None).p90
    for kinds in range(_kinds(ranked[0].layout)):
        some = [item for item in layouts if _kinds(item) == kinds]
        found = search(task, some, modes, job, 1) if some else []
        if found and found[0].fits and _seconds(found[0]) <= longest:
            return [found[0], *(row for row in ranked if _key(row.layout) != _key(found[0].layout))]
    return ranked


def _kinds(item: Layout) -> int:
    """Kinds of splits of the model itself."""
    return (item.tensor > 1) + (item.pipeline > 1) + (item.context > 1)


def search(
    task: Task, layouts: Sequence[Layout], modes: Sequence[str], job: step.StepJob | None, most: int = ALTERNATIVES + 1
) -> list[Choice]:
    """The best layout that fits, then the best of other splits, `most` in all; if none fits, the smallest one.

    layouts: with the first of the modes of recomputation, which is the fastest. They are taken in the order of a bound
    of their time, and the search ends when no other can be among the answers.
    """
    if job is None:
        return _without_times(task, layouts, modes)[:most]
    limit, partial = _limit(task.facts), len(modes) > 1
    some = [item for item in layouts if memory.least(task.arch, item, task.recipe) <= limit]
    bounds = [step.least(job, item) for item in some]
    found: dict[tuple[int, int, int, int], Choice] = {}
    for at in sorted(range(len(some)), key=bounds.__getitem__):
        split = _key(some[at])
        last = _last(found, most)
        if bounds[at] > last:
            break
        if split in found:
            last = min(last, _seconds(found[split]))
        if last < math.inf and (bounds[at] > last or step.time(job, some[at]).total_s > last):
            continue
        for item in _recomputing(some[at], modes):
            if memory.least_stored(task.arch, item, task.recipe, task.seq) > limit:
                continue
            choice = choose(task, item, job, partial)
            if choice.fits:
                found[split] = min(found.get(split, choice), choice, key=merit)
                if item is some[at]:
                    break
    if not found:
        return [choose(task, _smallest(task, layouts, modes), job, partial)]
    return sorted(found.values(), key=merit)[:most]


def _without_times(task: Task, layouts: Sequence[Layout], modes: Sequence[str]) -> list[Choice]:
    """The same by the order of merit() without times: the least recomputing, then the least splitting."""
    limit = _limit(task.facts)
    order = sorted(layouts, key=lambda item: (item.tensor * item.pipeline * item.context, item.zero))
    found: dict[tuple[int, int, int, int], Choice] = {}
    for at, mode in enumerate(modes):
        for item in order:
            best = sorted(merit(choice) for choice in found.values())
            now = (item.tensor * item.pipeline * item.context, item.zero)
            if len(best) > ALTERNATIVES and (float(layout.RECOMPUTES.index(mode)), *now) > best[ALTERNATIVES][1:4]:
                break
            item = item if at == 0 else _in_mode(item, mode)
            if memory.least_stored(task.arch, item, task.recipe, task.seq) > limit:
                continue
            choice = choose(task, item, None, len(modes) > 1)
            if choice.fits:
                found[_key(item)] = min(found.get(_key(item), choice), choice, key=merit)
    return sorted(found.values(), key=merit)[: ALTERNATIVES + 1] or [
        choose(task, _smallest(task, layouts, modes), None, len(modes) > 1)
    ]


def _with_fsdp(
    ranked: list[Choice], task: Task, layouts: Sequence[Layout], modes: Sequence[str], job: step.StepJob | None
) -> list[Choice]:
    """The answers, and after them FSDP alone, which most people run first, unless it is among them."""
    plain = [item for item in layouts if _is_fsdp(item)]
    if not plain or any(_is_fsdp(choice.layout) for choice in ranked):
        return ranked
    return [*ranked, *(choice for choice in search(task, plain, modes, job, 1) if choice.fits)]


def _is_fsdp(item: Layout) -> bool:
    return item.zero == 3 and item.data == item.gpus


def _recomputing(item: Layout, modes: Sequence[str]) -> Iterator[Layout]:
    """The layout in every mode, itself first."""
    yield item
    yield from (_in_mode(item, mode) for mode in modes[1:])


def _in_mode(item: Layout, mode: str) -> Layout:
    """The layout in another mode of recomputation, without the cost of validating it again."""
    return Layout.model_construct(**(item.__dict__ | {"recompute": mode}))


def _smallest(task: Task, layouts: Sequence[Layout], modes: Sequence[str]) -> Layout:
    bounds = [memory.least(task.arch, item, task.recipe) for item in layouts]
    best, least = layouts[0], math.inf
    for at in sorted(range(len(layouts)), key=bounds.__getitem__):
        if bounds[at] >= least:
            break
        for item in _recomputing(layouts[at], modes):
            peak = _peak(task, item)
            best, least = (item, peak) if peak < least else (best, least)
    return best


def _last(found: Mapping[tuple[int, int, int, int], Choice], most: int) -> float:
    """Seconds of the slowest split that would be shown."""
    times = sorted(_seconds(choice) for choice in found.values())
    return times[most - 1] if len(times) >= most else math.inf


def _seconds(choice: Choice) -> float:
    return choice.step.total_s if choice.step else math.inf


def step_job(task: Task) -> step.StepJob | None:
    """The inputs of the step's predicted time; None if the GPU and type are not calibrated, or it has no link."""
    if calibration.band(task.facts, task.recipe.compute, task.stack) is None or (
        task.facts.link is None and task.gpus > 1
    ):
        return None
    fabric = step.fabric(task.facts, calibration.shares(task.stack), task.per_node, task.network_bytes_s)
    return step.StepJob(task.arch, task.recipe, task.seq, task.facts, calibration.shares(task.stack), fabric)


def choose(task: Task, item: Layout, job: step.StepJob | None, partial: bool = True) -> Choice:
    """Memory and time of one layout, including a workspace of the size that PyTorch uses.

    partial: under full recomputation, only as many layers as memory demands run twice.
    """
    peak, limit = _peak(task, item), _limit(task.facts)
    if partial and item.recompute == "full" and peak <= limit:
        item, peak = _least_recomputed(task, item, peak, limit)
    fits = peak <= limit
    return Choice.model_construct(
        layout=item, peak_bytes=peak, fits=fits, step=step.time(job, item) if job else None, stack=task.stack
    )


def _peak(task: Task, item: Layout) -> int:
    return memory.peak(task.arch, item, task.recipe, task.seq, calibration.shares(task.stack).workspace_bytes)


def _least_recomputed(task: Task, item: Layout, whole: int, limit: int) -> tuple[Layout, int]:
    """The layout that fits with the fewest recomputed layers per stage, and its peak. whole: when all run twice."""
    layers = most_layers(task.arch, item)
    stored = _peak(task, item.model_copy(update={"recomputed": 0.0}))
    share = max(0.0, (stored - limit) / max(1, stored - whole))
    for count in range(math.ceil(share * layers), layers):
        fewer = item.model_copy(update={"recomputed": count / layers})
        if (peak := _peak(task, fewer)) <= limit:
            return fewer, peak
    return item, whole


def _device(facts: GpuFacts) -> float:
    return facts.memory.reported_bytes or facts.memory.sold_gb * 1e9


def _usable(facts: GpuFacts) -> int:
    return int(_device(facts) * USABLE)


def _limit(facts: GpuFacts) -> int:
    return int(_usable(facts) * (1 - MARGIN))


def merit(choice: Choice) -> tuple[bool, float, int, int, int]:
    """Sort key: layouts that fit first, then the shortest step; without times, the least recomputing and splitting."""
    item = choice.layout
    time = choice.step.total_s if choice.step else float(("none", "selective", "full").index(item.recompute))
    return (
        not choice.fits,
        time if choice.fits else choice.peak_bytes,
        item.tensor * item.pipeline * item.context,
        item.zero,
        choice.peak_bytes,
    )


def _answer(
    task: Task, ranked: Sequence[Choice], job: step.StepJob | None, considered: int
) -> Planned[DistributedPlan]:
    best = ranked[0]
    usage = memory.training(
        task.arch, best.layout, task.recipe, task.seq, calibration.shares(task.stack).workspace_bytes
    )
    ratio = calibration.memory_ratio(task.stack, best.layout.tensor * best.layout.pipeline > 1)
    bands = {"memory.peak_bytes": calibration.around(ratio, usage.peak_bytes, "bytes")}
    band = calibration.band(task.facts, task.recipe.compute, task.stack)
    if best.step is not None and band is not None:
        bands["best.step.total_s"] = calibration.around(
            band.of(task.arch.mlp.experts is not None), best.step.total_s, "s"
        )
    return Planned[DistributedPlan](
        answer=DistributedPlan(
            headline=_headline(task, best, usage, bands),
            parameters=parameters.total(task.arch),
            active_parameters=parameters.active(task.arch),
            best=best,
            dominant=_dominant(best, usage),
            memory=usage,
            usable_bytes=_usable(task.facts),
            alternatives=list(ranked[1:]),
            considered=considered,
        ),
        assumptions=_assumptions(task, job.fabric if job else None),
        band=bands,
        not_modelled=_not_modelled(task, job),
        definitions={
            "mfu": "model FLOPs (6 per matrix parameter, causal attention counted half) / dense peak of the type",
            "zero": "0 replicates, 1 shards optimizer state, 2 gradients too, 3 weights too (FSDP)",
            "peak_bytes": "live tensors of the fullest GPU at the worst moment",
        },
        check_here="aisp distributed measure --layers 4 --hidden 1024 --heads 16 --seq 512",
        sources=[*lookup.sources(task.facts, task.arch), *(calibration.sources(task.stack) if job else [])],
    )


def _headline(task: Task, best: Choice, usage: TrainingMemory, bands: dict[str, Band]) -> str:
    item = best.layout
    sizes = {"DP": item.data, "TP": item.tensor, "PP": item.pipeline, "CP": item.context, "EP": item.expert}
    split = " x ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "one GPU"
    zero = f", ZeRO-{item.zero}" if item.zero else ""
    start = f"{task.arch.name}, {task.recipe.name}, {task.stack}, on {task.gpus} {task.facts.sku}: {split}{zero}"
    lacking = "" if best.fits else "does NOT fit, "
    most = bands["memory.peak_bytes"].p90
    lacking = "may NOT fit, " if best.fits and most > _device(task.facts) else lacking
    memory_text = f"{lacking}{usage.peak_bytes / GIB:.1f} of {_usable(task.facts) / GIB:.1f} GiB per GPU"
    if best.step is None:
        return f"{start}; {memory_text}; no time is predicted for this GPU."
    band = bands["best.step.total_s"]
    rate = best.step.tokens_per_s / task.gpus
    took = f"{best.step.total_s:.3g} s per step ({band.p10:.3g}-{band.p90:.3g})"
    return f"{start}; {took}, {rate:,.0f} tokens/s/GPU, MFU {best.step.mfu:.0%}; {memory_text}."


def _dominant(best: Choice, usage: TrainingMemory) -> str:
    top = max(usage.items, key=lambda item: item.bytes)
    room = f"Memory is mostly {top.name} ({top.bytes / usage.peak_bytes:.0%})."
    if best.step is None:
        return room
    parts = {
        "matrix products": best.step.products_s,
        "elementwise memory traffic": best.step.traffic_s,
        "tensor, context and expert collectives": best.step.tensor_s,
        "exposed gradient communication": best.step.data_exposed_s,
        "the pipeline bubble": best.step.bubble_s,
    }
    name, seconds = max(parts.items(), key=lambda part: part[1])
    return f"{name[0].upper()}{name[1:]} take {seconds / best.step.total_s:.0%} of the step. {room}"


def _not_modelled(task: Task, job: step.StepJob | None) -> list[str]:
    no_link = task.facts.link is None and task.gpus > 1
    return lookup.first(
        "Memory: allocator fragmentation, NCCL buffers, the CUDA context (8 % of the device is reserved for them).",
        "Time: data loading, stragglers, checkpoints, failures.",
        "Time: overlap of tensor, context and expert collectives, which some frameworks hide in part.",
        f"Times: {task.facts.sku} has no link between GPUs in the table of GPU facts." if no_link else None,
        None if job or no_link else calibration.absent(task.facts, task.recipe.compute, task.stack),
        "Experts: balanced load; small products of few tokens per expert run below the assumed share."
        if task.arch.mlp.experts
        else None,
        "Recurrent layers count as attention layers do." if task.arch.recurrent else None,
    )


def _key(item: Layout) -> tuple[int, int, int, int]:
    return item.tensor, item.pipeline, item.context, item.data


def _assumptions(task: Task, fabric: Fabric | None) -> list[str]:
    recipe = task.recipe
    attention = "Flash attention" if recipe.flash else "Attention that stores its scores"
    sequence = "sequence parallelism" if recipe.sequence_parallel else "no sequence parallelism"
    frozen = f"Weights are frozen; adapters of rank {recipe.lora_rank} are trained." if recipe.lora_rank else None
    return lookup.first(
        *task.arch.assumed,
        f"Stack {task.stack}: {calibration.stack(task.stack).what}.",
        f"Bytes per parameter: {recipe.weights} weights, {recipe.gradients} gradients, {recipe.optimizer:g} optimizer.",
        frozen,
        f"Beyond the published context of {task.arch.context:,} tokens: rotary positions are stretched."
        if task.arch.context and task.seq > task.arch.context
        else None,
        f"{attention}; {sequence} where tensors are split; gradients freed after each step.",
        "The batch is the whole job's, in sequences of the given length.",
        f"A layout may use {USABLE * (1 - MARGIN):.0%} of device memory: 8 % for the runtime, {MARGIN:.0%} as margin.",
        f"{fabric.network / 1e9:.0f} GB/s per GPU and direction between nodes; ranks use all adapters of a node."
        if fabric and task.gpus > task.per_node
        else None,
        f"{task.per_node} GPUs per node, joined by {task.facts.link.kind}." if task.facts.link else None,
    )
