"""Step time over GPU counts, with the model and calibration that `distributed plan` uses."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import lookup
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.gemm import TERA
from aisp_mcp.plan.records import Ratio, Source
from aisp_mcp.plan.training import calibration, step
from aisp_mcp.plan.training.layout import Layout, splits_heads
from aisp_mcp.plan.training.recipe import RECIPES
from aisp_mcp.records import Record

SPREAD = 0.08  # around a measured step: its variation between runs, and the model's error at other counts

NOT_MODELLED = [
    "data loading, stragglers, checkpoints, failures",
    "overlap of tensor-parallel collectives, congestion between nodes, whether a layout fits into memory",
]
DEFINITIONS = {
    "step": "products + memory traffic + tensor collectives + exposed gradient communication + bubble",
    "model_tflops_per_gpu": "model FLOPs (causal attention halved, no recomputation) over step time",
    "mfu": "model FLOP/s over the dense peak of the type",
    "band": "step time: tenth and ninetieth percentile of measured over predicted, rows as named",
    "efficiency": "tokens/s per GPU over that of the smallest GPU count",
}


class ScalingRow(Record):
    """One GPU count. efficiency: tokens/s per GPU over that of the first row, both at p50."""

    gpus: int
    data_parallel: int
    p10_s: float = Field(description="Step time, as p50_s and p90_s.")
    p50_s: float
    p90_s: float
    compute_s: float
    exposed_communication_s: float
    bubble_s: float
    tokens_per_s: float
    model_tflops_per_gpu: float = Field(description="Model FLOPs (no recomputation) per second and GPU, p50.")
    mfu: float
    efficiency: float


@dataclass(frozen=True)
class ScalingQuestion:
    """The caller's arguments. layout.data and .microbatches follow from gpus and batch."""

    arch: Architecture
    layout: Layout
    gpus: int
    batch: int
    seq: int
    gpu: str
    dtype: str
    between_gb_s: float | None
    per_node: int
    measured_step_s: float | None
    weak: bool


@dataclass(frozen=True)
class Prediction:
    """Rows per GPU count, with their basis."""

    rows: list[ScalingRow]
    assumptions: list[str]
    sources: list[Source]


def predict(question: ScalingQuestion) -> Prediction:
    """Predict each GPU count. Raises UsageError UNKNOWN_GPU, BAD_LAYOUT, BELOW_ROOF, Unavailable NO_PEAK, NO_LINK,
    NO_CALIBRATION.
    """
    facts = lookup.gpu(question.gpu)
    lookup.require_dtype(facts, [question.dtype])
    lookup.require_context(question.arch, question.seq)
    layout = _layout(question, question.gpus, question.batch)
    job, ratio, basis = _calibrated(question, facts, layout)
    rows: list[ScalingRow] = []
    for count in _counts(question):
        batch = question.batch * count // question.gpus if question.weak else question.batch
        rows.append(_row(job, _layout(question, count, batch), ratio, rows[0] if rows else None))
    links = f"{job.fabric.link / 1e9:.4g} GB/s inside a node of {job.fabric.per_node}"
    between = f", {job.fabric.network / 1e9:.4g} GB/s between nodes" if question.gpus > question.per_node else ""
    assumptions = [
        f"{facts.peak[question.dtype].dense:.5g} TFLOP/s {question.dtype} dense per GPU",
        f"{links}{between}, per GPU and direction",
        f"1F1B pipeline with {layout.virtual} virtual stages, micro-batches of {layout.microbatch}",
        "gradients overlap with the last micro-batch's backward pass and cross nodes on all adapters of a node",
        f"recomputation of activations: {layout.recompute}",
        basis,
    ]
    return Prediction(rows, assumptions, [*lookup.sources(facts, question.arch), *calibration.sources()])


def _layout(question: ScalingQuestion, gpus: int, batch: int) -> Layout:
    """The layout at that count. Raises UsageError BAD_LAYOUT."""
    base, arch = question.layout, question.arch
    group = base.tensor * base.pipeline
    if gpus % group:
        raise UsageError("BAD_LAYOUT", f"{gpus} GPUs are not a multiple of tensor x pipeline = {group}.")
    if base.tensor > question.per_node or not splits_heads(arch, base.tensor):
        heads = f"{arch.attention.heads} heads or exceeds the {question.per_node} GPUs of a node"
        raise UsageError("BAD_LAYOUT", f"tensor {base.tensor} does not divide {heads}.", "Choose a smaller divisor.")
    if arch.layers < base.pipeline * base.virtual:
        stages = f"{base.pipeline} stages" + (f" of {base.virtual} chunks" if base.virtual > 1 else "")
        raise UsageError("BAD_LAYOUT", f"{arch.layers} layers do not fill {stages}.", "Use fewer stages or chunks.")
    data = gpus // group
    if batch % (data * base.microbatch):
        raise UsageError(
            "BAD_LAYOUT",
            f"A batch of {batch} sequences does not divide into {data} replicas x {base.microbatch}.",
            "Choose a batch that is a multiple of data-parallel size x micro_batch.",
        )
    return base.model_copy(update={"data": data, "microbatches": batch // data // base.microbatch})


def _calibrated(question: ScalingQuestion, facts: GpuFacts, layout: Layout) -> tuple[step.StepJob, Ratio, str]:
    """The job, measured over predicted time, and a sentence on where both come from."""
    if layout.gpus > question.per_node and question.between_gb_s is None:
        raise Unavailable(
            "NO_LINK",
            "The layout spans nodes, and the rate between them is not known.",
            "Give network_gb_s per GPU and direction: a 400 Gb/s adapter per GPU is 50.",
        )
    if facts.link is None and layout.gpus > 1:
        raise Unavailable("NO_LINK", f"{facts.sku} has no GPU link in the table of GPU facts.", "Measure: aisp hw nccl")
    shares = calibration.shares()
    network = question.between_gb_s * 1e9 if question.between_gb_s else None
    fabric = step.fabric(facts, shares, question.per_node, network)
    recipe = RECIPES["mixed"].model_copy(update={"compute": question.dtype})
    job = step.StepJob(question.arch, recipe, question.seq, facts, shares, fabric)
    if question.measured_step_s is not None:
        speed = _speed(job, layout, question.measured_step_s)
        text = (
            f"compute runs at {speed:.3g} of the usual rate, from the measured step; the band is {SPREAD:.0%} around it"
        )
        return job.at(speed), Ratio(p10=1 - SPREAD, p90=1 + SPREAD, basis="the measured step"), text
    band = calibration.band(facts, question.dtype)
    if band is None:
        raise Unavailable(
            "NO_CALIBRATION",
            calibration.absent(facts, question.dtype),
            "Give step_s of one real step of this layout.",
        )
    ratio = band.of(question.arch.mlp.experts is not None)
    return job, ratio, f"the share of the peak and the band are calibrated on: {ratio.basis}"


def _speed(job: step.StepJob, layout: Layout, measured_s: float) -> float:
    """Rate of products and traffic at which the model reproduces the measured step. Raises UsageError BELOW_ROOF."""
    peak = job.facts.peak[job.recipe.compute].dense * TERA
    tokens = layout.microbatch * layout.microbatches * layout.data * job.seq
    if step.flops(job.arch, job.recipe, job.seq) * tokens / (peak * layout.gpus) > measured_s:
        raise UsageError(
            "BELOW_ROOF",
            "The measured step is shorter than the peak rates allow for this model and layout.",
            "Check parameters, batch, GPU and dtype.",
        )
    low, high = 1e-6, 1e3
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if step.time(job.at(middle), layout).total_s > measured_s else (low, middle)
    if abs(step.time(job.at(high), layout).total_s / measured_s - 1) > 0.01:
        raise UsageError("BELOW_ROOF", "Communication alone takes longer than the measured step.", "Check the links.")
    return statistics.geometric_mean([low, high])


def _row(job: step.StepJob, layout: Layout, ratio: Ratio, first: ScalingRow | None) -> ScalingRow:
    times = step.time(job, layout)
    per_gpu = times.tokens_per_s / layout.gpus
    rate = step.flops(job.arch, job.recipe, job.seq) * per_gpu
    return ScalingRow(
        gpus=layout.gpus,
        data_parallel=layout.data,
        p10_s=times.total_s * ratio.p10,
        p50_s=times.total_s,
        p90_s=times.total_s * ratio.p90,
        compute_s=times.products_s + times.traffic_s,
        exposed_communication_s=times.tensor_s + times.data_exposed_s,
        bubble_s=times.bubble_s,
        tokens_per_s=times.tokens_per_s,
        model_tflops_per_gpu=rate / TERA,
        mfu=times.mfu,
        efficiency=per_gpu / (first.tokens_per_s / first.gpus) if first else 1.0,
    )


def _counts(question: ScalingQuestion) -> list[int]:
    """Halvings of the GPU count down to one model replica that still divide the batch, smallest first."""
    base, counts = question.layout, [question.gpus]
    group = base.tensor * base.pipeline
    while len(counts) < 6 and counts[-1] % 2 == 0 and (counts[-1] // 2) % group == 0:
        half = counts[-1] // 2
        batch = question.batch * half // question.gpus if question.weak else question.batch
        if batch == 0 or batch % (half // group * base.microbatch):
            break
        counts.append(half)
    return counts[::-1]


def described(params_b: float, layers: int, hidden: int) -> Architecture:
    """A dense transformer of that size with a gated MLP. Raises UsageError BAD_ARCHITECTURE if the sizes disagree."""
    heads = max(n for n in range(1, hidden // 64 + 2) if hidden % n == 0 and (hidden // n >= 64 or n == 1))
    width = round((params_b * 1e9 / layers - 4 * hidden * hidden) / (3 * hidden))
    if width < 1:
        least = 4.0 * layers * hidden * hidden / 1e9
        raise UsageError(
            "BAD_ARCHITECTURE",
            f"{layers} layers of {hidden} have {least:.3g} billion parameters in attention alone, not {params_b:g}.",
            "Give parameters in billions, with layers and hidden of the same model.",
        )
    attention = {"heads": heads, "kv_heads": heads, "head_dim": hidden // heads, "layers": layers}
    sizes = {
        "layers": layers,
        "hidden": hidden,
        "vocab": 1,
        "tied": True,
        "attention": attention,
        "mlp": {"width": width},
    }
    return lookup.architecture(None, sizes)
