"""Time of one training step of a dense transformer on many GPUs: compute + exposed communication + pipeline bubble.

Closed forms: FLOPs per token 6 P + 6 L h s (causal attention halved); tensor parallelism moves four all-reduces of
batch x sequence x hidden per layer and micro-batch (Megatron-LM, 1909.08053); data parallelism reduces the gradients
once per step and hides behind the backward pass of the last micro-batch; the bubble of 1F1B is (p - 1) / (v m) of a
stage's work (2104.04473). Ring factors as in nccl-tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pydantic import Field

from aisp_mcp.records import Record

BACKWARD_SHARE = 2 / 3  # of forward + backward without recomputation
MATMUL_BYTES = 2  # activations and gradients travel in 16 bits


@dataclass(frozen=True)
class Model:
    """A dense transformer. parameters: all of them."""

    parameters: float
    layers: int
    hidden: int
    sequence: int


@dataclass(frozen=True)
class Layout:
    """Parallel sizes; batch counts sequences of the whole step."""

    gpus: int
    tensor: int
    pipeline: int
    batch: int
    micro_batch: int
    virtual_stages: int
    recompute: bool

    @property
    def data(self) -> int:
        return self.gpus // (self.tensor * self.pipeline)

    @property
    def micro_batches(self) -> float:
        """Per pipeline and step."""
        return self.batch / (self.data * self.micro_batch)


@dataclass(frozen=True)
class Machine:
    """Peak FLOP/s of the type, and bytes/s per GPU and direction inside a node and between nodes."""

    peak: float
    inside: float
    between: float
    per_node: int


class Estimate(Record):
    """One efficiency assumption."""

    step_s: float
    compute_s: float
    tensor_communication_s: float
    data_communication_s: float
    exposed_data_s: float
    bubble_s: float

    @property
    def exposed_communication_s(self) -> float:
        return self.tensor_communication_s + self.exposed_data_s


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


def flops_per_step(model: Model, layout: Layout) -> float:
    """Model FLOPs of forward and backward, without recomputation."""
    tokens = layout.batch * model.sequence
    return tokens * (6 * model.parameters + 6 * model.layers * model.hidden * model.sequence)


def estimate(model: Model, layout: Layout, machine: Machine, compute: float, link: float) -> Estimate:
    """compute and link: reached shares of the peak FLOP/s and of the link rate. Sizes must divide; callers check."""
    work = flops_per_step(model, layout) * (4 / 3 if layout.recompute else 1.0)
    # The fullest stage sets the pace.
    stage = math.ceil(model.layers / layout.pipeline) * layout.pipeline / model.layers
    busy = stage * work / (layout.gpus * machine.peak * compute)
    tensor = _tensor(model, layout, machine, link)
    data = _data(model, layout, machine, link)
    # Gradients leave while the last micro-batch runs backward: what is longer than that is exposed.
    hidden = BACKWARD_SHARE * busy / layout.micro_batches
    exposed = max(0.0, data - hidden)
    bubble = (layout.pipeline - 1) / (layout.virtual_stages * layout.micro_batches) * (busy + tensor)
    return Estimate(
        step_s=busy + tensor + exposed + bubble,
        compute_s=busy,
        tensor_communication_s=tensor,
        data_communication_s=data,
        exposed_data_s=exposed,
        bubble_s=bubble,
    )


def _tensor(model: Model, layout: Layout, machine: Machine, link: float) -> float:
    """Four all-reduces per layer and micro-batch (six with recomputation), none of them hidden."""
    t = layout.tensor
    if t == 1:
        return 0.0
    rate = (machine.inside if t <= machine.per_node else machine.between) * link
    message = layout.micro_batch * model.sequence * model.hidden * MATMUL_BYTES
    times = (6 if layout.recompute else 4) * math.ceil(model.layers / layout.pipeline) * layout.micro_batches
    return times * message * 2 * (t - 1) / t / rate


def _data(model: Model, layout: Layout, machine: Machine, link: float) -> float:
    """Reduce-scatter and all-gather of this GPU's gradients over the data-parallel group."""
    d = layout.data
    if d == 1:
        return 0.0
    rate = (machine.inside if layout.gpus <= machine.per_node else machine.between) * link
    return 2 * (d - 1) / d * model.parameters / (layout.tensor * layout.pipeline) * MATMUL_BYTES / rate


Band = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]


def curve(
    model: Model, layout: Layout, machine: Machine, band: Band, counts: list[int], weak: bool
) -> list[ScalingRow]:
    """One row per GPU count. band: (compute, link) shares at p10, p50 and p90 of the step time, fastest first.

    weak: the batch grows with the GPUs; otherwise it stays that of the layout.
    """
    rows: list[ScalingRow] = []
    first = 0.0
    for count in counts:
        batch = layout.batch * count // layout.gpus if weak else layout.batch
        at = replace(layout, gpus=count, batch=batch)
        fast, middle, slow = (estimate(model, at, machine, *shares) for shares in band)
        tokens = at.batch * model.sequence / middle.step_s
        rate = flops_per_step(model, at) / middle.step_s / count
        first = first or tokens / count
        rows.append(
            ScalingRow(
                gpus=count,
                data_parallel=at.data,
                p10_s=fast.step_s,
                p50_s=middle.step_s,
                p90_s=slow.step_s,
                compute_s=middle.compute_s,
                exposed_communication_s=middle.exposed_communication_s,
                bubble_s=middle.bubble_s,
                tokens_per_s=tokens,
                model_tflops_per_gpu=rate / 1e12,
                mfu=rate / machine.peak,
                efficiency=tokens / count / first,
            )
        )
    return rows


def calibrated(model: Model, layout: Layout, machine: Machine, link: float, step_s: float) -> float | None:
    """Compute share at which the forms give a measured step time, by bisection; None where none in (0, 1] does."""
    low, high = 1e-4, 1.0
    if estimate(model, layout, machine, high, link).step_s > step_s:
        return None
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if estimate(model, layout, machine, middle, link).step_s > step_s else (low, middle)
    return (low + high) / 2
