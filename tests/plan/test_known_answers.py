"""Closed forms against published numbers and sums done by hand."""

from __future__ import annotations

import math

import pytest

from aisp_mcp.plan import kv, parameters
from aisp_mcp.plan.architecture import Architecture, Attention, Mlp
from aisp_mcp.plan.cluster import collectives
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.savings import cost
from aisp_mcp.plan.training import memory
from aisp_mcp.plan.training.layout import Layout

GIB = 1 << 30


def model(name: str) -> Architecture:
    return tables.models()[name]


@pytest.mark.parametrize("name", sorted(tables.models()))
def test_parameters_are_the_published_count(name: str) -> None:
    arch = model(name)
    if arch.parameters is None:
        pytest.skip("no published total is kept")
    if arch.recurrent is not None:
        pytest.skip("recurrent layers are not described; the published total is used")
    assert parameters.total(arch) == arch.parameters


def test_most_models_have_a_published_count_that_the_closed_form_is_held_to() -> None:
    assert sum(m.parameters is not None and m.recurrent is None for m in tables.models().values()) >= 12


# Bytes in bf16 of one sequence of 8,192 tokens, by hand: layers x 2 x kv heads x head size x 2 bytes x tokens.
KV = {
    "llama-2-7b": 32 * 2 * 32 * 128 * 2 * 8192,
    "llama-3.1-8b": 1 << 30,  # 32 x 2 x 8 x 128 x 2 = 128 KiB a token
    "llama-3.1-70b": 80 * 4096 * 8192,
    "llama-3.1-405b": 126 * 4096 * 8192,
    "mixtral-8x7b": 1 << 30,
    "qwen2.5-7b": 28 * 2048 * 8192,
    "qwen3-8b": 36 * 4096 * 8192,
    "phi-3-mini": 32 * 2 * 32 * 96 * 2 * 8192,
    "mistral-7b-v0.1": 32 * 4096 * 4096,  # every layer forgets after 4,096 tokens
    "gemma-2-9b": 21 * 8192 * 8192 + 21 * 8192 * 4096,  # 2 x 8 x 256 x 2 = 8,192 a token; half the layers slide
    "gemma-3-27b": 10 * 8192 * 8192 + 52 * 8192 * 1024,  # one layer in six is global, the first five slide
    "gpt-oss-120b": 18 * 2048 * 8192 + 18 * 2048 * 128,
    "deepseek-v3": 61 * (512 + 64) * 2 * 8192,  # one latent and one rotary key a layer, whatever the heads
    "deepseek-v2-lite": 27 * 1152 * 8192,
    # Four attending layers of 32; 28 layers of 8,192 x 3 convolution elements in 16 bit and 8,192 x 16 states in fp32.
    "jamba-v0.1": 4 * 4096 * 8192 + 28 * (24576 * 2 + 131072 * 4),
    # Twelve of 48 attend with 2 heads of 256; 36 keep 8,192 x 3 elements and 32 x 128 x 128 states.
    "qwen3-next-80b-a3b": 12 * 2048 * 8192 + 36 * (24576 * 2 + 524288 * 4),
}


@pytest.mark.parametrize("name", sorted(KV))
def test_the_cache_of_public_models_to_the_byte(name: str) -> None:
    assert kv.cache(model(name), 8192, 1, "bf16").total_bytes == KV[name]


# Lieber et al. 2024, Jamba (arXiv 2403.19887), table 1: cache at 256K tokens in 16 bit, without sliding windows.
@pytest.mark.parametrize(("name", "gib"), [("llama-2-7b", 128), ("mixtral-8x7b", 32), ("jamba-v0.1", 4)])
def test_the_cache_at_256k_tokens_is_the_published_one(name: str, gib: int) -> None:
    arch = model(name).model_copy(update={"recurrent": None})
    assert kv.cache(arch, 256 * 1024, 1, "bf16").total_bytes == gib * GIB


def test_quantised_caches_count_their_scales() -> None:
    arch = model("llama-3.1-8b")
    assert kv.cache(arch, 16, 1, "fp8").total_bytes * 2 == kv.cache(arch, 16, 1, "bf16").total_bytes
    # 16 values of 4 bits and one scale of 8: 72 bits instead of 256.
    assert kv.cache(arch, 16, 1, "nvfp4").total_bytes * 32 == kv.cache(arch, 16, 1, "bf16").total_bytes * 9


# Rajbhandari et al. 2020 (arXiv 1910.02054), table 1: GB per GPU of 7.5 billion parameters, rounded to three digits.
ZERO = {(1, 1): 120, (1, 4): 52.5, (1, 16): 35.6, (1, 64): 31.4, (1, 256): 30.4, (1, 1024): 30.1}
ZERO |= {(2, 4): 41.3, (2, 16): 21.6, (2, 64): 16.6, (2, 256): 15.4, (2, 1024): 15.1}
ZERO |= {(3, 4): 30, (3, 16): 7.5, (3, 64): 1.88, (3, 256): 0.47, (3, 1024): 0.12}


@pytest.mark.parametrize(("stage", "ranks"), sorted(ZERO))
def test_zero_is_the_published_table(stage: int, ranks: int) -> None:
    weights, gradients, optimizer = (7.5 * part for part in (2, 2, 12))
    arch = Architecture(
        name="7.5b", layers=1, hidden=1, vocab=1, attention=Attention(heads=1, kv_heads=1, head_dim=1, layers=1),
        mlp=Mlp(width=1), recurrent=None, source="table",
    )  # fmt: skip
    # The closed form on a model of any size, scaled to the table's.
    layout = Layout(data=ranks, zero=stage)
    rows = memory.training(arch, layout.model_copy(update={"microbatches": 2}), memory.RECIPES["mixed"], 1)
    count = parameters.total(arch)
    assert count > 0
    share = {1: (1, 1), 2: (1, ranks), 3: (ranks, ranks)}[stage]
    expected = weights / share[0] + gradients / share[1] + optimizer / ranks
    assert expected == pytest.approx(ZERO[stage, ranks], rel=0.02 if ZERO[stage, ranks] > 0.2 else 0.05)
    items = {item.name: item.bytes for item in rows.items}
    assert items["optimizer"] == math.ceil(count * 12 / ranks)
    assert items["weights"] == math.ceil(count * 2 / share[0])
    assert items["gradients"] == math.ceil(count * 2 / share[1])


# NVIDIA DGX Cloud benchmarking recipes: model FLOPs per token at 8,192 tokens, causal attention counted half.
@pytest.mark.parametrize(("name", "gflops"), [("llama-3.1-70b", 449.1), ("llama-3.1-405b", 2521)])
def test_training_flops_are_the_published_ones(name: str, gflops: float) -> None:
    assert parameters.training_flops(model(name), 8192) / 1e9 == pytest.approx(gflops, rel=0.002)


def test_active_parameters_of_experts() -> None:
    assert parameters.active(model("mixtral-8x7b")) == pytest.approx(12.9e9, rel=0.01)  # its makers: 12.9B
    assert parameters.active(model("qwen3-235b-a22b")) == pytest.approx(22e9, rel=0.02)  # its name
    assert parameters.active(model("deepseek-v3")) == pytest.approx(37e9, rel=0.02)  # arXiv 2412.19437


def test_a_line_through_three_points_by_hand() -> None:
    fit = collectives.fit("all_reduce", [(0.0, 2.0), (10.0, 4.0), (20.0, 6.0)])
    assert (fit.alpha_s, 1 / fit.bytes_per_s) == (pytest.approx(2.0), pytest.approx(0.2))
    assert fit.left_out_mape == pytest.approx(0.0)
    assert collectives.line([(1.0, 1.0), (10.0, 100.0)])[0] == 0.0  # a negative latency is none
    assert collectives.line([(1.0, 2.0), (10.0, 1.0)])[1] == 0.0
    with pytest.raises(ValueError, match="three sizes"):
        collectives.fit("all_reduce", [(1.0, 1.0), (2.0, 2.0)])


def test_bus_bandwidth_factors_are_those_of_nccl_tests() -> None:
    # 8 ranks, 1 GB in 5 ms: algorithm bandwidth 200 GB/s, bus bandwidth 350 GB/s for an all-reduce.
    assert collectives.busbw_seconds("all_reduce", 10**9, 350e9, 8) == pytest.approx(0.005)
    assert collectives.busbw_seconds("all_gather", 10**9, 175e9, 8) == pytest.approx(0.005)


def test_electricity_and_rent_per_million_tokens() -> None:
    # 800 W at 0.16 USD/kWh is 0.128 USD/h; a million tokens at 1,500/s take 666.7 s.
    load = cost.Load(gpus=1, tokens_per_s=1500, watts=800, usd_per_kwh=0.16)
    figures = cost.estimate(load, 2.95, None)
    assert figures.electricity_usd_per_million_tokens == pytest.approx(0.0237, abs=5e-5)
    assert figures.usd_per_million_tokens == pytest.approx(2.95 * 666.667 / 3600, rel=1e-4)
    assert figures.usd_per_run is None
