"""Memory of training over random models and every layout that the planner emits for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import lookup, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.training import distributed, memory
from aisp_mcp.plan.training.layout import RECOMPUTES, Layout, candidates
from aisp_mcp.plan.training.recipe import RECIPES, Recipe

STATES = ("weights", "gradients", "optimizer")


@st.composite
def models(draw: st.DrawFn) -> Architecture:
    """A decoder, dense or with experts, tied or not, with an odd number of layers as often as an even one."""
    layers, heads = draw(st.integers(1, 13)), draw(st.sampled_from([2, 4, 8, 12]))
    mlp: dict[str, object] = {"width": draw(st.integers(1, 300))}
    if draw(st.booleans()):
        count = draw(st.sampled_from([4, 8, 12, 64]))
        mlp["experts"] = {
            "count": count, "active": draw(st.integers(1, count)), "ffn": draw(st.integers(1, 99)),
            "shared": draw(st.integers(0, 2)), "dense_layers": draw(st.integers(0, layers)),
        }  # fmt: skip
    return Architecture.model_validate({
        "name": "random", "source": "", "layers": layers, "hidden": draw(st.integers(8, 300)), "mlp": mlp,
        "vocab": draw(st.integers(1, 3000)), "tied": draw(st.booleans()),
        "attention": {"heads": heads, "kv_heads": draw(st.sampled_from([1, 2, heads])), "head_dim": 16,
                      "layers": layers},
    })  # fmt: skip


def states_of_all_gpus(arch: Architecture, layout: Layout, recipe: Recipe) -> int:
    """Bytes of weights, gradients and optimizer over every GPU of every stage."""
    each = layout.gpus // layout.pipeline
    rows = [memory.on_stage(arch, layout, recipe, 1024, stage) for stage in memory.stages(arch, layout)]
    return sum(each * item.bytes for stage in rows for item in stage.items if item.name in STATES)


@settings(max_examples=10, deadline=None)
@given(models(), st.sampled_from([1, 2, 8, 16, 24, 32]), st.sampled_from(["mixed", "bf16", "fp32"]))
def test_no_layout_keeps_less_than_the_model(arch: Architecture, gpus: int, precision: str) -> None:
    recipe = RECIPES[precision]
    least = (recipe.weights + recipe.gradients + recipe.optimizer) * parameters.total(arch)
    for layout in candidates(arch, gpus, 8, 2 * gpus, 1024):
        assert layout.gpus == gpus
        assert layout.data * layout.microbatch * layout.microbatches == 2 * gpus
        assert sum(stage.layers for stage in memory.stages(arch, layout)) == arch.layers
        if layout.gpus > 1 or layout.microbatches > 1:
            assert states_of_all_gpus(arch, layout, recipe) >= least, layout
        fullest = memory.training(arch, layout, recipe, 1024)
        assert sum(item.bytes for item in fullest.items) == fullest.peak_bytes


def test_experts_are_divided_once() -> None:
    arch = tables.models()["deepseek-v3"]
    for zero in (1, 2, 3):
        layout = Layout(data=16, expert=16, zero=zero, microbatches=2)
        assert states_of_all_gpus(arch, layout, RECIPES["mixed"]) >= 16 * parameters.total(arch)
    sharded = memory.training(arch, Layout(data=16, expert=16, zero=3, microbatches=2), RECIPES["mixed"], 4096)
    assert sum(i.bytes for i in sharded.items if i.name in STATES) == pytest.approx(parameters.total(arch), rel=0.001)


def test_uneven_stages_hold_all_layers() -> None:
    arch = tables.models()["llama-3.1-405b"]
    figures = memory.stages(arch, Layout(pipeline=8))
    assert [stage.layers for stage in figures] == [16] * 6 + [15] * 2
    assert sum(stage.rest + stage.experts for stage in figures) == pytest.approx(parameters.total(arch), rel=1e-6)


# Korthikanti et al. 2022 (arXiv 2205.05198), table 2: bytes of activations per layer, in units of s b h.
@pytest.mark.parametrize(
    ("tensor", "parallel", "recompute", "factor"),
    [
        (1, True, "none", lambda a, s, h, t: 34 + 5 * a * s / h),
        (8, False, "none", lambda a, s, h, t: 10 + 24 / t + 5 * a * s / h / t),
        (8, True, "none", lambda a, s, h, t: 34 / t + 5 * a * s / h / t),
        (8, False, "selective", lambda a, s, h, t: 10 + 24 / t),
        (8, True, "selective", lambda a, s, h, t: 34 / t),
    ],
)  # fmt: skip
def test_activations_are_the_published_formulas(tensor: int, parallel: bool, recompute: str, factor: object) -> None:
    heads, seq, hidden = 96, 2048, 12288
    arch = tables.models()["gpt3-175b"]
    recipe = RECIPES["mixed"].model_copy(update={"flash": False, "dropout": True, "sequence_parallel": parallel})
    layout = Layout.model_validate({"tensor": tensor, "recompute": recompute, "microbatches": 2})
    by_name = memory.training(arch.model_copy(update={"vocab": 1}), layout, recipe, seq)
    stored = next(item.bytes for item in by_name.items if item.name == "activations") / arch.layers
    assert callable(factor)
    assert stored == pytest.approx(seq * hidden * factor(heads, seq, hidden, tensor), rel=0.002)


@pytest.mark.parametrize(
    ("model", "gpu", "gpus"),
    [("llama-3.1-8b", "H100-SXM", 8), ("mixtral-8x7b", "H200-SXM", 8), ("qwen3-32b", "MI300X", 4)],
)
def test_the_search_finds_what_trying_every_layout_finds(model: str, gpu: str, gpus: int) -> None:
    arch = lookup.architecture(model)
    task = distributed.Task(arch, lookup.gpu(gpu), gpus, 8, 4096, 2 * gpus, RECIPES["mixed"])
    job = distributed.step_job(task)
    every = [distributed.choose(task, item, job) for item in candidates(arch, gpus, 8, 2 * gpus, 4096)]
    best = min(every, key=distributed.merit)
    layouts = list(candidates(arch, gpus, 8, 2 * gpus, 4096, {"recompute": "none"}))
    found = distributed.search(task, layouts, RECOMPUTES, job)[0]
    assert (found.layout, found.peak_bytes) == (best.layout, best.peak_bytes)
    answer = distributed.plan(task, {}, "megatron").answer
    assert answer.considered == len(every)
    shown = [choice.layout for choice in (answer.best, *answer.alternatives)]
    assert any(item.zero == 3 and item.data == gpus for item in shown)


def test_a_layout_that_wins_by_less_than_the_band_does_not_displace_a_simpler_one() -> None:
    task = distributed.Task(lookup.architecture("llama-3.1-8b"), lookup.gpu("H100"), 8, 8, 8192, 64, RECIPES["fp8"])
    best = distributed.plan(task, {}).answer.best
    assert best.stack == "megatron"
    assert best.layout.data == 8


@pytest.mark.parametrize(
    ("model", "precision", "fixed", "stack"),
    [
        ("llama-3.1-8b", "mixed", {}, "eager"),
        ("llama-3.1-8b", "mixed", {"tensor": 2}, "megatron"),
        ("llama-3.1-8b", "fp8", {"zero": 3}, "torchtitan"),
        ("llama-3.1-405b", "mixed", {}, "megatron"),
        ("qwen3-30b-a3b", "mixed", {"zero": 3}, "nemo"),
    ],
)
def test_the_stack_is_what_most_people_run(model: str, precision: str, fixed: dict[str, int | str], stack: str) -> None:
    task = distributed.Task(lookup.architecture(model), lookup.gpu("H200"), 64, 8, 4096, 128, RECIPES[precision])
    assert distributed.plan(task, fixed).answer.best.stack == stack


def test_a_stack_without_splits_names_those_that_have_them() -> None:
    task = distributed.Task(lookup.architecture("llama-3.1-8b"), lookup.gpu("H100"), 8, 8, 8192, 64, RECIPES["mixed"])
    with pytest.raises(UsageError, match="tensor needs another stack"):
        distributed.plan(task, {"tensor": 2}, "eager")


def test_a_pipeline_of_405b_needs_what_torchtitan_published() -> None:
    """512 H100, FSDP 8, TP8 x PP8, 32 sequences in 8 microbatches: 82.5 GiB with 1F1B, reserved."""
    task = distributed.Task(
        lookup.architecture("llama-3.1-405b"), lookup.gpu("H100"), 512, 8, 8192, 256, RECIPES["fp8"]
    )
    fixed: dict[str, int | str] = {"tensor": 8, "pipeline": 8, "context": 1, "zero": 3, "microbatch": 4}
    held = distributed.plan(task, {**fixed, "recompute": "full"}, "torchtitan").answer.memory
    assert held.peak_bytes / 2**30 == pytest.approx(82.5, rel=0.1)
    sizes = {item.name: item.bytes for item in held.items}
    boundary = 2 * 16384 * 4 * 8192 // 8  # 16-bit outputs of a microbatch, divided over the tensor ranks
    assert sizes["between stages"] == (8 + 8) * boundary  # stage 0: gradients to receive, outputs in flight
