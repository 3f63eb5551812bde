"""The serving planner as users ask it: rates with prefill, layouts, limits, formats, prices, refusals."""

from __future__ import annotations

from typing import Any

import plan_support
import pytest

from aisp_mcp.plan.data import tables
from aisp_mcp.plan.serving import formats, rate
from aisp_mcp.plan.serving.workload import lengths
from aisp_mcp.plan.training import measure
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data

LLAMA = {"model": "llama-2-70b", "gpus": 8, "gpu": "H100-SXM", "weights": "fp8", "prompt": 294, "output": 294}


def ask(ctx: Context, **args: Any) -> dict[str, Any]:
    answer: dict[str, Any] = to_data(execute("aisp_inference_vllm", {**LLAMA, **args}, ctx))
    assert answer["status"] == "ok", answer
    return answer["result"]


def rate_of(ctx: Context, **args: Any) -> dict[str, Any]:
    results: dict[str, Any] = ask(ctx, **args)["answer"]["rate"]
    return results


def refusal(ctx: Context, **args: Any) -> str:
    answer = to_data(execute("aisp_inference_vllm", {**LLAMA, **args}, ctx))
    assert answer["status"] == "error", answer
    return str(answer["error"]["code"])


def test_llama_2_70b_on_eight_h100_reaches_the_published_rate(ctx: Context) -> None:
    answer = ask(ctx, tensor=1, pipeline=2)  # as submitted
    band = answer["band"]["rate.tokens_per_s_per_gpu"]
    assert band["p10"] <= 3900 <= band["p90"]
    assert abs(answer["answer"]["rate"]["tokens_per_s_per_gpu"] / 3900 - 1) < 0.2
    assert answer["answer"]["headline"].startswith("llama-2-70b, fp8, ")
    assert "MLPerf" in band["basis"]


@pytest.mark.parametrize(
    ("gpu", "weights"), [("MI300X", "fp8"), ("B200-SXM", "fp4"), ("L40S", "fp8"), ("A100-SXM-80GB", "bf16")]
)
@pytest.mark.parametrize("scenario", ["offline", "server", "interactive"])
def test_every_vendor_is_planned_and_points_lie_in_their_bands(
    ctx: Context, gpu: str, weights: str, scenario: str
) -> None:
    args = {"gpu": gpu, "weights": weights, "scenario": scenario, "model": "llama-3.1-8b", "usd_per_gpu_hour": 2.0}
    envelope = execute("aisp_inference_vllm", {**LLAMA, **args}, ctx)
    assert envelope.error is None, envelope.error
    full = envelope.result if isinstance(envelope.result, dict) else envelope.result.model_dump()
    for name, band in full["band"].items():
        value: Any = full["answer"]
        for part in name.split("."):
            value = value[part]
        assert band["p10"] < value < band["p90"], name
    step = full["answer"]["rate"]["step"]
    assert sum(value for name, value in step.items() if name != "total") == pytest.approx(step["total"])


def test_prompts_are_paid_for_and_prefix_hits_are_not(ctx: Context) -> None:
    short, long = rate_of(ctx, prompt=10), rate_of(ctx, prompt=2000)
    hit = rate_of(ctx, prompt=2000, prefix_hit=0.9)
    assert short["tokens_per_s"] > 3 * long["tokens_per_s"]
    assert long["tokens_per_s"] < hit["tokens_per_s"] < short["tokens_per_s"]


def test_fixed_sizes_are_kept_and_the_free_choice_is_the_fastest_without_stages(ctx: Context) -> None:
    free = rate_of(ctx)
    for tensor in (2, 4, 8):
        fixed = rate_of(ctx, tensor=tensor, pipeline=1)
        assert fixed["layout"]["tensor"] == tensor
        assert fixed["tokens_per_s"] <= free["tokens_per_s"]
    assert rate_of(ctx, tensor=4, batch=64)["concurrency"] == 64
    assert rate_of(ctx, tensor=4, pipeline=1, concurrency=64)["concurrency"] == 32


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "weights", "stages"),
    [
        ("llama-3.1-405b", "GB300", 72, "fp4", 1),  # planned 1.09 times as fast over eight stages
        ("llama-2-70b", "H100-SXM", 8, "fp8", 1),  # 1.13 over two
        ("llama-3.1-70b", "A100-SXM-80GB", 8, "bf16", 1),
        ("llama-3.1-405b", "H100-SXM", 16, "bf16", 2),  # fits no node; not four of half as many tensors
        ("llama-3.1-70b", "L40S", 4, "fp8", 2),  # over PCIe they gain more than the band
    ],
)
def test_stages_are_chosen_where_they_gain_more_than_the_band(
    ctx: Context, model: str, gpu: str, gpus: int, weights: str, stages: int
) -> None:
    args = {"model": model, "gpu": gpu, "gpus": gpus, "weights": weights, "prompt": 1024, "output": 512}
    answer = ask(ctx, **args)
    best, band = answer["answer"]["rate"], answer["band"]["rate.tokens_per_s_per_gpu"]
    assert best["layout"]["pipeline"] == stages
    upper = band["p90"] / best["tokens_per_s_per_gpu"]
    for other in answer["answer"]["alternatives"]:
        faster = other["tokens_per_s"] > best["tokens_per_s"] * upper * 1.001
        assert not faster, other
        if other["layout"]["pipeline"] <= stages:
            assert other["tokens_per_s"] <= best["tokens_per_s"]


def test_tighter_limits_cost_throughput_and_are_met(ctx: Context) -> None:
    loose = rate_of(ctx, scenario="server")
    tight = rate_of(ctx, scenario="interactive", ttft_s=0.45, tpot_s=0.04)
    assert tight["tokens_per_s"] < loose["tokens_per_s"] < rate_of(ctx)["tokens_per_s"]
    assert tight["tpot_s"] <= 0.04
    assert tight["ttft_s"] <= 0.45
    assert refusal(ctx, scenario="server", tpot_s=1e-4) == "LIMITS_MISSED"
    missed = to_data(execute("aisp_inference_vllm", {**LLAMA, "scenario": "server", "ttft_s": 1e-3}, ctx))["error"]
    assert "ttft_s 0.001: on idle GPUs a prompt takes 0.0" in missed["message"]
    assert "tpot_s" not in missed["message"]


def test_speculation_and_a_given_cache_change_the_rate(ctx: Context) -> None:
    alone = rate_of(ctx, batch=4, tensor=8)
    assert rate_of(ctx, batch=4, tensor=8, draft=3, acceptance=0.8)["tpot_s"] < alone["tpot_s"]
    small = rate_of(ctx, tensor=8, cache_tokens=20_000)
    assert small["concurrency"] < 60
    assert small["limit"] == "cache"


def test_published_formats_are_the_default(ctx: Context) -> None:
    args: dict[str, Any] = {"weights": None, "gpu": "H200-SXM"}
    assert "deepseek-v3, fp8," in ask(ctx, model="deepseek-v3", **args)["answer"]["headline"]
    assert "mxfp4" in ask(ctx, model="gpt-oss-120b", **args)["answer"]["headline"]
    assert "llama-3.1-8b, bf16," in ask(ctx, model="llama-3.1-8b", **args)["answer"]["headline"]


def test_the_price_of_a_provider(ctx: Context) -> None:
    ctx.clock = lambda: 1_795_000_000.0  # 2026-11-18
    listed = next(row for row in tables.prices() if row.sku == "H100-SXM" and row.provider == "lambda")
    result = ask(ctx, provider="lambda")["answer"]
    per_gpu = result["rate"]["tokens_per_s_per_gpu"]
    assert result["usd_per_million_tokens"] == pytest.approx(listed.usd_per_gpu_hour / 3600 / per_gpu * 1e6, rel=1e-3)
    assert refusal(ctx, provider="nobody") == "NO_PRICE"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"weights": "fp8", "gpu": "V100"}, "NO_PEAK"),
        ({"weights": "int3"}, "NO_FORMAT"),
        ({"model": "llama-3.1-405b", "gpus": 1}, "DOES_NOT_FIT"),
        ({"tensor": 3}, "NO_LAYOUT"),
        ({"tensor": 8, "batch": 100_000}, "LIMITS_MISSED"),
        ({"ttft_s": 1.0}, "OFFLINE_LIMITS"),
        ({"batch": 1, "concurrency": 8}, "TWO_BATCHES"),
        ({"lengths": ""}, "BAD_LENGTHS"),
        ({"lengths": "0:10"}, "BAD_LENGTHS"),
        ({"lengths": "10:nan"}, "BAD_LENGTHS"),
        ({"lengths": "10"}, "BAD_LENGTHS"),
    ],
)
def test_refusals_name_the_reason(ctx: Context, args: dict[str, Any], code: str) -> None:
    assert refusal(ctx, **args) == code


@pytest.mark.parametrize(
    "args",
    [{"prompt": 0}, {"output": -1}, {"spread": -0.1}, {"prefix_hit": 1.0}, {"draft": 99}, {"tpot_s": 0}, {"gpus": 0}],
)
def test_impossible_numbers_are_refused(ctx: Context, args: dict[str, Any]) -> None:
    assert refusal(ctx, **args)


def test_moments_of_lengths() -> None:
    fixed = lengths(100, 50)
    assert (fixed.prompt, fixed.output, fixed.context, fixed.longest) == (100, 50, 125, 150)
    wide = lengths(100, 50, spread=1.0)
    assert (wide.prompt, wide.output) == (pytest.approx(100), pytest.approx(50))
    assert wide.context > fixed.context  # long answers stay longer
    pairs = lengths(1, 1, pairs="100:10:3,200:30")
    assert (pairs.prompt, pairs.output, pairs.longest) == (125, 15, 230)


def test_a_cache_budget_becomes_tokens_and_sequences(ctx: Context) -> None:
    args = {"model": "llama-3.1-8b", "tokens": 1000}
    answer = to_data(execute("aisp_inference_kv_cache", {**args, "budget_gib": 1.0}, ctx))["result"]["answer"]
    # 128 KiB a token: 8,192 tokens in 512 blocks of 16; 1,000 tokens take 63 blocks
    assert answer["capacity"] == {"bytes": 2**30, "blocks": 512, "tokens": 8192, "sequences": 8}
    same = to_data(execute("aisp_inference_kv_cache", {**args, "blocks": 512}, ctx))["result"]["answer"]
    assert same["capacity"] == answer["capacity"]
    both = to_data(execute("aisp_inference_kv_cache", {**args, "blocks": 1, "budget_gib": 1.0}, ctx))
    assert both["error"]["code"] == "TWO_BUDGETS"


def gpu_seconds(step: rate.Step) -> float:
    """A step without the engine's host, which the recorded passes did not have."""
    return step.total - step.host


def recorded_ratios(phase: str) -> list[float]:
    """Measured over predicted time of recorded passes on an H200; no serving constant was fitted to them."""
    shares, engine, layout = tables.serving_shares(), tables.engine(), rate.Layout(tensor=1)
    ratios = []
    for row in (row for row in plan_support.recorded("h200-decode")["rows"] if row["phase"] == phase):
        served = rate.Served(
            arch=measure.described(row),
            weights=formats.weight_format("bf16"),
            kv_dtype="bf16",
            facts=plan_support.facts("H200-SXM"),
            prefix_hit=1.0 if phase == "decode" else 0.0,
        )
        moments = lengths(row["tokens"], 1)
        predicted = (
            rate.prefill_s(served, layout, moments, shares, engine)
            if phase == "prefill"
            else gpu_seconds(rate.step(served, layout, moments, row["batch"], shares, engine))
        )
        ratios.append(row["seconds"] / predicted)
    return ratios


def test_first_tokens_lie_in_their_band_and_do_not_wait_for_the_last(ctx: Context) -> None:
    errors, inside = [], 0
    for row in plan_support.recorded("serving-first-tokens")["rows"][::5]:
        args = {name: row[name] for name in ("model", "gpu", "gpus", "weights", "prompt", "output", "concurrency")}
        answer = ask(ctx, **args, tensor=row["gpus"], pipeline=1, kv_dtype="bf16")
        errors.append(abs(answer["answer"]["rate"]["ttft_s"] / row["ttft_s"] - 1))
        band = answer["band"]["rate.ttft_s"]
        inside += band["p10"] <= row["ttft_s"] <= band["p90"]
    assert sorted(errors)[len(errors) // 2] <= 0.25
    assert inside / len(errors) >= 0.8
    alone = {"concurrency": 1, "tensor": 8, "pipeline": 1}
    assert rate_of(ctx, output=8, **alone)["ttft_s"] == rate_of(ctx, output=800, **alone)["ttft_s"]


def test_a_prompt_alone_starts_alike_and_one_of_many_later_with_sglang(ctx: Context) -> None:
    """28 prompts alone were published, and what one of several waits depends on the scheduler."""
    given = {"tensor": 8, "pipeline": 1}
    alone, many = (
        [rate_of(ctx, engine=engine, concurrency=count, **given)["ttft_s"] for engine in ("vllm", "sglang")]
        for count in (1, 16)
    )
    assert alone[1] == pytest.approx(alone[0], rel=0.1)
    assert many[1] > many[0] + 0.15


def test_the_band_of_a_server_that_is_filled_is_wider_than_with_a_number_of_sequences(ctx: Context) -> None:
    """Servers with default settings hold fewer sequences than fit: published rates were half of the predicted ones."""
    bands = [ask(ctx, tensor=8, pipeline=1, **more) for more in ({}, {"concurrency": 64})]
    low = [row["band"]["rate.tokens_per_s_per_gpu"]["p10"] for row in bands]
    rates = [row["answer"]["rate"]["tokens_per_s_per_gpu"] for row in bands]
    assert low[0] / rates[0] < low[1] / rates[1]


@pytest.mark.parametrize(("phase", "rows", "most"), [("prefill", 12, 0.07), ("decode", 32, 0.12)])
def test_the_step_model_holds_on_recorded_passes(phase: str, rows: int, most: float) -> None:
    ratios = recorded_ratios(phase)
    assert len(ratios) == rows
    assert sum(abs(1 / ratio - 1) for ratio in ratios) / rows <= most
    assert sum(0.85 <= ratio <= 1.2 for ratio in ratios) / rows >= 0.8  # narrowest band of ttft_s and tpot_s


def test_one_sequence_passes_through_all_stages_of_a_pipeline(ctx: Context) -> None:
    """Two stages took half the time of one, as if half a sequence were in each."""
    args = {"model": "deepseek-r1", "gpu": "H100-SXM", "gpus": 16, "weights": "fp8", "prompt": 128, "output": 128}
    alone = rate_of(ctx, **args, concurrency=1, tensor=8, pipeline=2)["tpot_s"]
    both = rate_of(ctx, **args, concurrency=2, tensor=8, pipeline=2)["tpot_s"]
    assert alone == pytest.approx(both, rel=0.05)


def test_a_missed_limit_is_named_with_what_can_be_reached(ctx: Context) -> None:
    args = {"scenario": "server", "tpot_s": 0.001, "ttft_s": 0.001}
    answer = to_data(execute("aisp_inference_vllm", {**LLAMA, **args}, ctx))
    message = answer["error"]["message"]
    assert "times the limit, and the least that can be promised" in message
    assert "on idle GPUs a prompt takes" in message
