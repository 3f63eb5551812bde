"""A prediction of training step time: facts of the GPU, the prior or a measured step, and the closed forms."""

from __future__ import annotations

from dataclasses import dataclass

from aisp_mcp.errors import NotFound, Unavailable, UsageError
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.provenance import cite
from aisp_mcp.machine.datasheets.records import GpuFacts
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.training import closed_form
from aisp_mcp.plan.training.closed_form import Band, Layout, Machine, Model, ScalingRow

SPREAD = 0.08  # around a calibrated share: what a step time does not repeat, and what the forms do not model

NOT_MODELLED = [
    "mixture of experts, context parallelism, ZeRO-3 or FSDP parameter gathering",
    "point-to-point time between pipeline stages, optimizer step, data loading, checkpoints, failures",
    "overlap of tensor-parallel communication, congestion between nodes, whether a layout fits into memory",
    "rings over all adapters of a node; gradients of several ranks in a node may cross that much faster",
]
DEFINITIONS = {
    "step": "compute + exposed tensor communication + exposed gradient communication + bubble",
    "model_tflops_per_gpu": "tokens x (6 P + 6 L h s) over step time and GPUs: causal attention halved, no recompute",
    "mfu": "model FLOP/s over the dense peak of the type",
    "band": "step time at the fast, middle and slow shares of compute and link: p10, p50, p90",
    "efficiency": "tokens/s per GPU over that of the smallest GPU count",
}


@dataclass(frozen=True)
class Question:
    """Everything a caller says. measured_step_s belongs to the layout as given."""

    model: Model
    layout: Layout
    gpu: str
    dtype: str
    between_gb_s: float | None
    per_node: int
    measured_step_s: float | None
    weak: bool


@dataclass(frozen=True)
class Prediction:
    """Rows per GPU count, with what they rest on."""

    rows: list[ScalingRow]
    assumptions: list[str]
    sources: list[str]


def predict(question: Question) -> Prediction:
    """Raises NotFound UNKNOWN_GPU, Unavailable NO_PEAK or NO_LINK, UsageError BAD_LAYOUT or BELOW_ROOF."""
    try:
        return _predict(question)
    except OverflowError as error:
        raise UsageError("BAD_LAYOUT", f"The sizes are beyond any machine: {error}.") from error


def _predict(question: Question) -> Prediction:
    layout = question.layout
    _check(question)
    facts = _facts(question.gpu)
    machine = _machine(question, facts)
    band, said, sources = _band(question, machine)
    counts = _counts(layout, question.weak)
    rows = closed_form.curve(question.model, layout, machine, band, counts, question.weak)
    peak = f"{machine.peak / 1e12:.5g} TFLOP/s {question.dtype} dense per GPU"
    links = f"{machine.inside / 1e9:.4g} GB/s inside a node of {machine.per_node}"
    between = f", {machine.between / 1e9:.4g} GB/s between nodes" if layout.gpus > machine.per_node else ""
    assumptions = [
        f"{peak}, {links}{between}, per GPU and direction",
        f"1F1B pipeline with {layout.virtual_stages} virtual stages, micro-batches of {layout.micro_batch}",
        "tensor-parallel communication is fully exposed; gradients hide behind the last micro-batch's backward pass",
        "full recomputation" if layout.recompute else "no recomputation of activations",
        *said,
    ]
    return Prediction(rows, assumptions, [f"{facts.sku}: {cite(facts)}, checked {facts.checked}", *sources])


def _check(question: Question) -> None:
    layout = question.layout
    group = layout.tensor * layout.pipeline
    if layout.gpus % group:
        raise UsageError("BAD_LAYOUT", f"{layout.gpus} GPUs are no multiple of tensor x pipeline = {group}.")
    if layout.batch % (layout.data * layout.micro_batch):
        raise UsageError(
            "BAD_LAYOUT",
            f"A batch of {layout.batch} sequences does not divide into {layout.data} replicas x {layout.micro_batch}.",
            "Choose a batch that is a multiple of data-parallel size x micro_batch.",
        )
    if question.model.layers < layout.pipeline:
        raise UsageError("BAD_LAYOUT", f"{question.model.layers} layers do not fill {layout.pipeline} stages.")


def _facts(name: str) -> GpuFacts:
    facts = load.gpu(name)
    if facts is None:
        near = load.similar(name)
        hint = f"Known and alike: {', '.join(near)}." if near else "aisp info capabilities names the card of this host."
        raise NotFound("UNKNOWN_GPU", f"'{name[:80]}' is not in the table of GPU facts.", hint)
    return facts


def _machine(question: Question, facts: GpuFacts) -> Machine:
    peak = facts.peak.get(question.dtype)
    if peak is None:
        raise Unavailable("NO_PEAK", f"{facts.sku} has no {question.dtype} peak in the table of GPU facts.")
    layout = question.layout
    if layout.gpus > question.per_node and question.between_gb_s is None:
        raise Unavailable(
            "NO_LINK",
            "The layout spans nodes, and the rate between them is not known.",
            "Give internode_gb_s per GPU and direction: a 400 Gb/s adapter per GPU is 50.",
        )
    if facts.link is None and layout.gpus > 1:
        raise Unavailable("NO_LINK", f"{facts.sku} has no GPU link in the table of GPU facts.", "Measure: aisp hw nccl")
    inside = facts.link.per_direction_bytes_s if facts.link else 1.0
    return Machine(peak.dense * 1e12, inside, (question.between_gb_s or 0.0) * 1e9 or inside, question.per_node)


def _band(question: Question, machine: Machine) -> tuple[Band, list[str], list[str]]:
    """Shares of compute and link at p10, p50 and p90 of the step time."""
    prior = tables.plan_document("training_efficiency.yaml")
    links = prior["link"]
    if question.measured_step_s is None:
        shares = prior["compute"]
        said = [f"compute reaches {shares[2]:g} / {shares[1]:g} / {shares[0]:g} of peak (slow, middle, fast): a prior"]
        sources = [f"{text} (prior)" for text in prior["sources"]]
    else:
        middle = closed_form.calibrated(question.model, question.layout, machine, links[1], question.measured_step_s)
        if middle is None:
            raise UsageError(
                "BELOW_ROOF",
                "The measured step is shorter than the peak rates allow for this model and layout.",
                "Check parameters, batch, GPU and dtype.",
            )
        shares = [middle * (1 + SPREAD), middle, middle * (1 - SPREAD)]
        said = [f"compute reaches {middle:.3g} of peak, from the measured step; the band is {SPREAD:.0%} around it"]
        sources = ["the measured step time that the caller gave"]
    said.append(f"links reach {links[2]:g} / {links[1]:g} / {links[0]:g} of their line rate")
    band: Band = ((shares[0], links[0]), (shares[1], links[1]), (shares[2], links[2]))
    return band, said, sources


def _counts(layout: Layout, weak: bool) -> list[int]:
    """Halvings of the GPU count down to one model replica for which the batch still divides, smallest first."""
    counts = [layout.gpus]
    group = layout.tensor * layout.pipeline
    while len(counts) < 6 and counts[-1] % 2 == 0 and (counts[-1] // 2) % group == 0:
        half = counts[-1] // 2
        batch = layout.batch * half // layout.gpus if weak else layout.batch
        if batch % (half // group * layout.micro_batch):
            break
        counts.append(half)
    return counts[::-1]
