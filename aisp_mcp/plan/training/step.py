"""Time of a training step: products, memory traffic, exposed communication, pipeline bubble."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.machine.datasheets.records import GpuFacts
from aisp_mcp.plan import parameters
from aisp_mcp.plan.gemm import TERA
from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.records.calibration import Calibration
from aisp_mcp.plan.training import memory
from aisp_mcp.plan.training.layout import Layout
from aisp_mcp.records import Record

BACKWARD_SHARE = 2 / 3  # of the compute: what gradient communication can hide behind
RECOMPUTED = 1.4  # activation traffic of a checkpointed layer against a stored one


class StepTime(Record):
    """Seconds of one optimizer step of the whole job."""

    total_s: float
    products_s: float
    traffic_s: float = Field(description="Passes over activations, logits and optimizer state.")
    tensor_s: float = Field(description="Tensor-parallel collectives, none hidden.")
    data_exposed_s: float = Field(description="Gradient and weight collectives beyond what the backward pass hides.")
    bubble_s: float
    tokens_per_s: float
    mfu: float = Field(description="Model FLOPs, causal attention counted half, over dense peak of all GPUs.")


class Fabric(Record):
    """Rates between GPUs in bytes/s per direction."""

    link: float
    network: float
    per_node: int


def time(
    arch: Architecture,
    layout: Layout,
    recipe: memory.Recipe,
    seq: int,
    facts: GpuFacts,
    calibration: Calibration,
    fabric: Fabric,
) -> StepTime:
    """Predict one step. Raises KeyError when the datasheet has no peak for the dtype."""
    dtype = "fp32" if recipe.name == "fp32" else "bf16"
    peak = facts.peak[dtype].dense * TERA
    tokens = layout.microbatch * seq
    model = parameters.training_flops(arch, seq) * tokens
    extra = (model - 6.0 * tokens * arch.vocab * arch.hidden) / 3 if layout.checkpoint else 0.0
    share = layout.tensor * layout.pipeline * layout.context
    products = (model + extra) / share / (peak * calibration.step.peak) * layout.microbatches
    traffic = _traffic(arch, layout, recipe, seq, facts, calibration)
    tensor = _tensor(arch, layout, recipe, seq, calibration, fabric)
    busy = products + traffic + tensor
    bubble = busy * (layout.pipeline - 1) / layout.microbatches
    data = _data(arch, layout, recipe, calibration, fabric)
    hidden = BACKWARD_SHARE * busy / (layout.microbatches if layout.zero < 3 else 1)
    exposed = max(0.0, data - hidden)
    total = busy + bubble + exposed
    batch = tokens * layout.microbatches * layout.data
    return StepTime(
        total_s=total,
        products_s=products,
        traffic_s=traffic,
        tensor_s=tensor,
        data_exposed_s=exposed,
        bubble_s=bubble,
        tokens_per_s=batch / total,
        mfu=parameters.training_flops(arch, seq) * batch / total / (peak * layout.gpus),
    )


def _traffic(
    arch: Architecture,
    layout: Layout,
    recipe: memory.Recipe,
    seq: int,
    facts: GpuFacts,
    calibration: Calibration,
) -> float:
    """Elementwise work of all microbatches and one optimizer update, in seconds."""
    tokens = layout.microbatch * seq // layout.context
    layers = arch.layers / layout.pipeline
    kept = layers * memory.layer_activations(arch, layout, recipe, tokens) * (RECOMPUTED if layout.checkpoint else 1)
    logits = memory.FP32 * tokens * arch.vocab / layout.tensor / layout.pipeline
    shares, bandwidth = calibration.step, facts.memory.bandwidth_bytes_s
    batch = (shares.activation_passes * kept + shares.loss_passes * logits) / bandwidth
    mine = memory.local_parameters(arch, layout) / (layout.data if layout.zero else 1)
    update = mine * (2 * (recipe.weights + recipe.optimizer) + recipe.gradients)
    return batch * layout.microbatches + update / (bandwidth * calibration.gemm.bandwidth)


def _tensor(
    arch: Architecture,
    layout: Layout,
    recipe: memory.Recipe,
    seq: int,
    calibration: Calibration,
    fabric: Fabric,
) -> float:
    """Two all-reduces (or their halves under sequence parallelism) per layer and pass, at bus bandwidth."""
    if layout.tensor == 1:
        return 0.0
    passes = 3 if layout.checkpoint else 2
    size = recipe.activations * arch.hidden * layout.microbatch * seq / layout.context
    each = size * 2 * (layout.tensor - 1) / layout.tensor / (fabric.link * calibration.link_share)
    return 2 * passes * each * arch.layers / layout.pipeline * layout.microbatches


def _data(arch: Architecture, layout: Layout, recipe: memory.Recipe, calibration: Calibration, fabric: Fabric) -> float:
    """Gradient all-reduce over the slowest link that it crosses; with FSDP two gathers and a scatter per microbatch."""
    if layout.data == 1:
        return 0.0
    inside = layout.gpus <= fabric.per_node
    rate = (fabric.link if inside else fabric.network) * calibration.link_share
    size = memory.local_parameters(arch, layout) * recipe.gradients * (layout.data - 1) / layout.data
    return (3 * layout.microbatches if layout.zero >= 3 else 2) * size / rate
