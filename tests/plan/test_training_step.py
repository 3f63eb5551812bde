"""The closed forms by hand, and what they say of published training runs, beside which the prior was chosen."""

from __future__ import annotations

from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.machine.datasheets import load
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.training import closed_form, scaling
from aisp_mcp.plan.training.closed_form import Band, Layout, Machine, Model

SMALL = Model(parameters=1e9, layers=10, hidden=1000, sequence=1000)


def layout(gpus: int, tensor: int = 1, pipeline: int = 1, batch: int = 64, **more: int) -> Layout:
    fields = {"micro_batch": 1, "virtual_stages": 1, "recompute": False, **more}
    return Layout(gpus=gpus, tensor=tensor, pipeline=pipeline, batch=batch, **fields)  # type: ignore[arg-type]


HOST = Machine(peak=1e12, inside=1e9, between=1e8, per_node=8)


def test_one_gpu_computes_and_does_nothing_else() -> None:
    found = closed_form.estimate(SMALL, layout(1), HOST, 0.5, 0.5)
    # 64,000 tokens x (6e9 + 6 x 10 x 1000 x 1000) FLOP over half of 1e12 FLOP/s
    assert found.step_s == found.compute_s == pytest.approx(64_000 * 6.06e9 / 5e11)


def test_tensor_parallel_all_reduces() -> None:
    found = closed_form.estimate(SMALL, layout(4, tensor=4), HOST, 1.0, 0.5)
    # 4 per layer and micro-batch, of 1000 x 1000 x 2 bytes, ring factor 2 x 3/4, at half of 1 GB/s
    assert found.tensor_communication_s == pytest.approx(4 * 10 * 64 * 2e6 * 1.5 / 5e8)
    assert found.bubble_s == found.exposed_data_s == 0


def test_bubble_of_1f1b_and_of_interleaved_stages() -> None:
    plain = closed_form.estimate(SMALL, layout(5, pipeline=5, batch=20), HOST, 1.0, 1.0)
    assert plain.bubble_s == pytest.approx(plain.compute_s * 4 / 20)
    chunks = closed_form.estimate(SMALL, layout(5, pipeline=5, batch=20, virtual_stages=2), HOST, 1.0, 1.0)
    assert chunks.bubble_s == pytest.approx(plain.bubble_s / 2)


def test_gradients_hide_behind_the_last_micro_batch() -> None:
    found = closed_form.estimate(SMALL, layout(8, batch=64), HOST, 1.0, 0.5)
    assert found.data_communication_s == pytest.approx(2 * 7 / 8 * 1e9 * 2 / 5e8)  # 7 s
    hidden = 2 / 3 * found.compute_s / 8  # two thirds of one of eight micro-batches: 4.04 s
    assert found.exposed_data_s == pytest.approx(found.data_communication_s - hidden)
    far = closed_form.estimate(SMALL, layout(16, batch=64), HOST, 1.0, 1.0)
    assert far.data_communication_s == pytest.approx(2 * 15 / 16 * 2e9 / 1e8)


def test_recomputation_costs_a_third_more() -> None:
    plain = closed_form.estimate(SMALL, layout(1), HOST, 1.0, 1.0)
    again = closed_form.estimate(SMALL, layout(1, recompute=True), HOST, 1.0, 1.0)
    assert again.step_s == pytest.approx(plain.step_s * 4 / 3)


def test_calibration_inverts_the_forms() -> None:
    at = layout(16, tensor=2, pipeline=2, batch=64)
    step = closed_form.estimate(SMALL, at, HOST, 0.37, 0.75).step_s
    assert closed_form.calibrated(SMALL, at, HOST, 0.75, step) == pytest.approx(0.37)
    assert closed_form.calibrated(SMALL, at, HOST, 0.75, 1e-6) is None


# Megatron-LM, arXiv 2104.04473, table 1: parameters, layers, hidden, tensor, pipeline, GPUs, batch, TFLOP/s per GPU.
MEGATRON = [
    (1.7e9, 24, 2304, 1, 1, 32, 512, 137), (3.6e9, 30, 3072, 2, 1, 64, 512, 138),
    (7.5e9, 36, 4096, 4, 1, 128, 512, 142), (18.4e9, 40, 6144, 8, 1, 256, 1024, 135),
    (39.1e9, 48, 8192, 8, 2, 512, 1536, 138),
    (76.1e9, 60, 10240, 8, 4, 1024, 1792, 140), (145.6e9, 80, 12288, 8, 8, 1536, 2304, 148),
    (310.1e9, 96, 16384, 8, 16, 1920, 2160, 155), (529.6e9, 105, 20480, 8, 35, 2520, 2520, 163),
    (1008e9, 128, 25600, 8, 64, 3072, 3072, 163),
]  # fmt: skip
# Llama 3, arXiv 2407.21783, table 4: GPUs, sequences per step, BF16 TFLOP/s per GPU.
LLAMA = [(8192, 2048, 430), (16384, 2048, 400)]


def prior() -> Band:
    data = tables.plan_document("training_efficiency.yaml")
    first, second, third = zip(data["compute"], data["link"], strict=True)
    return first, second, third


def machine(name: str, between: float) -> Machine:
    facts = load.gpu(name)
    assert facts is not None
    assert facts.link is not None
    return Machine(facts.peak["bf16"].dense * 1e12, facts.link.per_direction_bytes_s, between, 8)


def published() -> list[tuple[list[float], float]]:
    """(predicted TFLOP/s at the fast, middle and slow end, published)."""
    rows = []
    for parameters, layers, hidden, tensor, pipeline, gpus, batch, said in MEGATRON:
        model = Model(parameters, layers, hidden, 2048)
        at = layout(gpus, tensor, pipeline, batch, virtual_stages=2 if pipeline > 1 else 1, recompute=True)
        # Their count of FLOP includes recomputation, whole attention and the output layer.
        flop = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / 6 / hidden + 51200 / 16 / layers / hidden)
        rows.append((_rates(model, at, machine("A100-SXM-80GB", 25e9), flop), float(said)))
    for gpus, batch, said in LLAMA:
        model = Model(405.85e9, 126, 16384, 8192)
        at = layout(gpus, 8, 16, batch, virtual_stages=4)
        flop = closed_form.flops_per_step(model, at)
        rows.append((_rates(model, at, machine("H100-SXM", 50e9), flop), float(said)))
    return rows


def _rates(model: Model, at: Layout, host: Machine, flop: float) -> list[float]:
    return [flop / closed_form.estimate(model, at, host, *shares).step_s / at.gpus / 1e12 for shares in prior()]


def test_the_band_holds_published_training_runs() -> None:
    rows = published()
    inside = sum(rates[2] <= said <= rates[0] for rates, said in rows)
    errors = [abs(rates[1] / said - 1) for rates, said in rows]
    checked = tables.plan_document("training_efficiency.yaml")["checked"]
    assert (len(rows), inside) == (checked["rows"], checked["within_band"])
    assert inside >= 0.8 * len(rows)
    assert round(sum(errors) / len(errors), 2) == checked["mean_error_p50"]


def ask(**more: object) -> scaling.Prediction:
    fields: dict[str, Any] = {"gpu": "H100-SXM", "dtype": "bf16", "between_gb_s": None, "per_node": 8}
    fields |= {"measured_step_s": None, "weak": False, "layout": layout(8), **more}
    return scaling.predict(scaling.Question(model=SMALL, **fields))


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"gpu": "H100"}, "UNKNOWN_GPU"),
        ({"gpu": "A100-SXM-80GB", "dtype": "fp8"}, "NO_PEAK"),
        ({"layout": layout(16)}, "NO_LINK"),
        ({"layout": layout(8, tensor=3)}, "BAD_LAYOUT"),
        ({"layout": layout(8, batch=12)}, "BAD_LAYOUT"),
        ({"measured_step_s": 1e-6}, "BELOW_ROOF"),
    ],
)
def test_it_abstains_where_it_has_no_data(more: dict[str, object], code: str) -> None:
    with pytest.raises(AispError) as caught:
        ask(**more)
    assert caught.value.code == code


def test_a_measured_step_replaces_the_prior() -> None:
    free = ask()
    told = ask(measured_step_s=2 * free.rows[-1].p50_s)
    assert told.rows[-1].p50_s == pytest.approx(2 * free.rows[-1].p50_s, rel=1e-6)
    assert "prior" not in " ".join([*told.assumptions, *told.sources])
    assert [row.gpus for row in told.rows] == [1, 2, 4, 8]
    assert told.rows[0].efficiency == 1
