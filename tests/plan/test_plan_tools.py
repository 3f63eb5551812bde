"""The planners through the ways a user reaches them: complete answers, refusals that name the next step."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from aisp_mcp.judge.records.measurement import Figures, Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.plan.cluster import nccl
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.serving import model
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data
from aisp_mcp.store.records.run import Run
from aisp_mcp.system.records import GpuPair, Topology

SHAPE = {"answer", "assumptions", "band", "not_modelled", "definitions", "check_here", "sources"}
COMPLETE = [
    ("aisp_distributed_plan", {"model": "llama-3.1-8b", "gpus": 8, "gpu": "H200-SXM", "batch": 64}),
    ("aisp_distributed_nccl", {"nodes": 2}),
    ("aisp_launch_plan", {"command": ["train.py"], "nodes": 2, "gpus": 8}),
    ("aisp_cluster_slurm", {"command": ["train.py"], "nodes": 2}),
    ("aisp_inference_vllm", {"model": "meta-llama/Llama-3.1-70B", "gpus": 8, "gpu": "H100-SXM"}),
    ("aisp_inference_quantization", {"model": "qwen3-8b", "gpu": "H100-SXM"}),
    ("aisp_inference_kv_cache", {"model": "deepseek-v3"}),
    ("aisp_cost_estimate", {"usd_per_gpu_hour": 2.0, "hours": 3.0}),
    ("aisp_recommend", {"gpu": "H200-SXM"}),
    ("aisp_optimize_techniques", {}),
]


def ask(ctx: Context, tool: str, **args: Any) -> dict[str, Any]:
    results: dict[str, Any] = to_data(execute(tool, args, ctx))
    return results


def code(ctx: Context, tool: str, **args: Any) -> tuple[str, str]:
    error = ask(ctx, tool, **args)["error"]
    return error["code"], error.get("hint") or ""


@pytest.mark.parametrize(("tool", "args"), COMPLETE)
def test_every_answer_has_the_whole_shape(ctx: Context, tool: str, args: dict[str, Any]) -> None:
    answer = ask(ctx, tool, **args)
    assert answer["status"] == "ok", answer
    envelope = execute(tool, args, ctx)
    assert envelope.result is not None
    full = envelope.result if isinstance(envelope.result, dict) else envelope.result.model_dump()
    assert set(full) == SHAPE
    assert full["assumptions"]
    assert full["not_modelled"]
    assert full["definitions"]
    assert full["check_here"]
    for source in full["sources"]:
        datetime.date.fromisoformat(source["as_of"])
    for band in full["band"].values():
        assert band["p10"] <= band["p90"]
    assert len(json.dumps(answer)) < 12_000


def test_unknown_names_end_in_an_error_that_names_the_known_ones(ctx: Context) -> None:
    assert code(ctx, "aisp_distributed_plan", model="llama-9", gpus=8, gpu="H200-SXM")[0] == "UNKNOWN_MODEL"
    result, hint = code(ctx, "aisp_inference_vllm", model="llama-3.1-8b", gpu="H100-SMX")
    assert (result, "H100-SXM" in hint) == ("UNKNOWN_GPU", True)
    assert code(ctx, "aisp_inference_vllm", model="llama-3.1-8b", gpu="H100-SXM", weights="int3")[0] == "NO_FORMAT"
    assert code(ctx, "aisp_inference_vllm", model="llama-3.1-405b", gpu="L4")[0] == "DOES_NOT_FIT"
    assert code(ctx, "aisp_distributed_plan", model="llama-3.1-405b", gpus=2, gpu="H200-SXM")[0] == "DOES_NOT_FIT"
    assert code(ctx, "aisp_distributed_plan", model="llama-3.1-8b", gpus=37, gpu="H200-SXM", batch=8)[0] == "NO_LAYOUT"
    assert code(ctx, "aisp_distributed_plan", architecture={"layers": 1}, gpus=1, gpu="L4")[0] == "BAD_ARCHITECTURE"
    for shape in ({"layers": 2}, {}, {"layers": 2, "hidden": 4096, "kv_heads": 8}, {"layers": 2, "heads": 32}):
        assert code(ctx, "aisp_inference_kv_cache", **shape)[0] == "NO_SHAPE", shape
    assert code(ctx, "aisp_distributed_plan", gpus=8, gpu="H200-SXM")[0] == "NO_MODEL"
    assert all(name in code(ctx, "aisp_inference_vllm", model="nosuch")[1] for name in tables.models())


@pytest.mark.parametrize(
    ("shape", "kind", "elements", "all_heads"),
    [
        ({"hidden": 4096, "head_dim": 128}, "MHA, assumed", 2 * 4096, 2 * 4096),
        ({"heads": 32, "head_dim": 128}, "MHA, assumed", 2 * 4096, 2 * 4096),
        ({"hidden": 4096, "head_dim": 128, "kv_heads": 8}, "GQA", 2 * 1024, 2 * 4096),
        ({"hidden": 4096, "heads": 32, "kv_heads": 8}, "GQA", 2 * 1024, 2 * 4096),
        ({"kv_heads": 8, "head_dim": 128}, "GQA or MHA", 2 * 1024, None),
        ({"kv_heads": 1, "head_dim": 128}, "MQA", 2 * 128, None),
        ({"hidden": 7168, "heads": 128, "latent": 576}, "MLA", 576, None),
        ({"heads": 128, "head_dim": 128, "latent": 576}, "MLA", 576, 2 * 128 * 128),
    ],
)
def test_a_cache_described_by_numbers(
    ctx: Context, shape: dict[str, int], kind: str, elements: int, all_heads: int | None
) -> None:
    answer = ask(ctx, "aisp_inference_kv_cache", layers=3, tokens=7, **shape)["result"]["answer"]
    assert (answer["cache"]["kind"], answer["cache"]["elements_per_token"]) == (kind, 3 * elements)
    assert answer["if_all_heads_cached_bytes"] == (None if all_heads is None else 3 * all_heads * 7 * 2)


@pytest.mark.parametrize(
    "shape",
    [{"hidden": 512, "heads": 7}, {"hidden": 4096, "heads": 32, "kv_heads": 5}, {"hidden": 4096, "head_dim": 96}],
)
def test_heads_that_do_not_divide_are_refused(ctx: Context, shape: dict[str, int]) -> None:
    assert code(ctx, "aisp_inference_kv_cache", layers=2, **shape)[0] == "BAD_SHAPE"
    assert code(ctx, "aisp_inference_kv_cache", model="llama-3.1-8b", **shape)[0] == "TWO_SHAPES"


def test_a_gpu_without_calibration_gets_memory_and_no_times(ctx: Context) -> None:
    plan = ask(ctx, "aisp_distributed_plan", model="llama-3.1-8b", gpus=8, gpu="MI300X")["result"]
    assert plan["answer"]["best"].get("step") is None
    assert plan["answer"]["memory"]["peak_bytes"] > 0
    assert any("no calibration" in text for text in plan["not_modelled"])


def test_the_chosen_layout_uses_all_gpus_and_its_items_add_up(ctx: Context) -> None:
    result = ask(ctx, "aisp_distributed_plan", model="llama-3.1-70b", gpus=64, gpu="H100-SXM", batch=512)["result"]
    layout = result["answer"]["best"]["layout"]
    assert layout["data"] * layout["tensor"] * layout["pipeline"] * layout["context"] == 64
    assert layout["data"] * layout["microbatch"] * layout["microbatches"] == 512
    memory = result["answer"]["memory"]
    assert sum(item["bytes"] for item in memory["items"]) == memory["peak_bytes"] <= result["answer"]["usable_bytes"]
    fixed = ask(ctx, "aisp_distributed_plan", model="llama-3.1-70b", gpus=64, gpu="H100-SXM", batch=512, tensor=8)
    assert fixed["result"]["answer"]["best"]["layout"]["tensor"] == 8


def test_memory_of_a_server_by_hand(ctx: Context) -> None:
    args = {"model": "llama-3.1-8b", "gpu": "A100-SXM-80GB", "prompt": 1000, "output": 24}
    fit = ask(ctx, "aisp_inference_vllm", **args)["result"]["answer"]["fit"]
    per_sequence = 131_072 * 1024  # 128 KiB a token; 1,024 tokens are 64 whole blocks of 16
    device = model.memory_bytes(_facts("A100-SXM-80GB"))
    budget = int(device * 0.9) - 2 * 8_030_261_248 - 2**31
    assert fit["kv_bytes_per_sequence"] == per_sequence
    assert fit["concurrency"] == budget // per_sequence


def _facts(name: str) -> Any:
    from aisp_mcp.machine.datasheets import load

    return load.gpu(name)


def test_prices_are_dated_and_old_ones_refused(ctx: Context) -> None:
    ctx.clock = lambda: datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC).timestamp()
    answer = ask(ctx, "aisp_cost_estimate", gpu="H100-SXM", gpus=8, hours=10.0)["result"]
    assert answer["answer"]["usd_per_run"] == pytest.approx(8 * 10 * answer["answer"]["price"]["usd_per_gpu_hour"])
    assert answer["sources"][0]["as_of"] == answer["answer"]["price"]["as_of"]
    own = ask(ctx, "aisp_cost_estimate", gpu="H100-SXM", usd_per_gpu_hour=1.0, hours=1.0)["result"]["answer"]
    assert own["usd_per_run"] == 1.0
    assert own.get("price") is None
    ctx.clock = lambda: datetime.datetime(2027, 12, 1, tzinfo=datetime.UTC).timestamp()
    assert code(ctx, "aisp_cost_estimate", gpu="H100-SXM", hours=1.0)[0] == "PRICE_OLD"
    assert ask(ctx, "aisp_cost_estimate", gpu="H100-SXM", hours=1.0, allow_old=True)["status"] == "ok"
    assert code(ctx, "aisp_cost_estimate", gpu="RTX-3090", hours=1.0)[0] == "NO_PRICE"
    assert code(ctx, "aisp_cost_estimate", hours=1.0)[0] == "NO_LOAD"


def side(seconds: float) -> Figures:
    return Figures(processes=5, rounds=5, calls=5, time_s=seconds, p50_s=seconds, p95_s=seconds, parent_time_s=seconds)


def keep(
    ctx: Context,
    verdict: Verdict,
    gpu: str | None = "NVIDIA H100 80GB HBM3",
    target: str = "ch01:bias_gelu",
    candidate: str = "",
) -> None:
    comparison = Comparison(
        target=target, candidate=candidate, verdict=verdict, sentence="", ratio=2.0,
        interval=Interval(low=1.6, high=2.5), baseline=side(3.6e-3), optimized=side(1.8e-3), isolation="L1",
        replicates=5,
    )  # fmt: skip
    gpus = [{"name": gpu}] if gpu else []
    run = Run(
        id=f"r_{candidate or 1}",
        created_at=1.0,
        preset="default",
        profile="strict",
        environment={"gpus": gpus},
        comparisons=[comparison],
    )
    ctx.store.save_run(run, None)


def test_savings_come_from_measured_runs_on_that_gpu_alone(ctx: Context) -> None:
    assert code(ctx, "aisp_bench_cost", gpu="H100")[0] == "NO_RUNS"
    keep(ctx, Verdict.FASTER)
    row = ask(ctx, "aisp_bench_cost", gpu="H100", usd_per_hour=1.0)["result"]["answer"]["rows"][0]
    # 3.6 ms at 1 USD an hour is 1e-6 USD a call: 1 USD a million calls, half of it saved; 1 - 1/1.6 and 1 - 1/2.5.
    assert row["baseline_usd_per_million_calls"] == pytest.approx(1.0)
    assert row["saved_usd_per_million_calls"] == pytest.approx(0.5)
    assert (row["saved_low"], row["saved_high"]) == (pytest.approx(0.375), pytest.approx(0.6))
    assert code(ctx, "aisp_bench_cost", gpu="A100", usd_per_hour=1.0)[0] == "NO_RUNS"
    roi = ask(ctx, "aisp_optimize_roi", calls_per_day=2e6, effort_usd=30.0, usd_per_hour=1.0)["result"]["answer"]
    assert roi["rows"][0]["days_to_pay"] == pytest.approx(30)
    best = ask(ctx, "aisp_recommend", gpu="H100-SXM")["result"]["answer"]["techniques"][0]
    assert (best["name"], best["measured"], best["run_id"]) == ("fused-kernels", 2.0, "r_1")


def test_advice_opens_with_a_sentence_and_counts_only_runs_of_that_gpu_and_goal(ctx: Context) -> None:
    keep(ctx, Verdict.FASTER)
    answer = ask(ctx, "aisp_recommend", gpu="H100-SXM", workload="inference")["result"]["answer"]
    assert answer["headline"].startswith(
        "For speed, try fused-kernels first (measured 2x here, published 1.41 to 2.27x)"
    )
    keep(ctx, Verdict.FASTER, target="ch15:attention", candidate="flash")  # faster, which saves no memory
    for question in ({"gpu": "A100-SXM-80GB"}, {"gpu": "H100-SXM", "goal": "memory", "workload": "inference"}):
        rows = ask(ctx, "aisp_recommend", **question)["result"]["answer"]["techniques"]
        assert not any(row.get("measured") for row in rows)


def test_savings_come_from_rows_and_open_no_run(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(ctx, Verdict.FASTER)
    monkeypatch.setattr(ctx.store, "run", lambda *_: pytest.fail("a run's body was read"))
    for tool, more in (("aisp_bench_cost", {}), ("aisp_optimize_roi", {"calls_per_day": 1e6, "effort_usd": 1.0})):
        answer = ask(ctx, tool, usd_per_hour=1.0, **more)["result"]["answer"]
        assert [row["target"] for row in answer["rows"]] == ["ch01:bias_gelu"]


def test_the_gain_of_a_longer_pair_name_is_not_this_pairs(ctx: Context) -> None:
    keep(ctx, Verdict.FASTER, target="ch01:bias_gelu_wide", candidate="fused")
    techniques = ask(ctx, "aisp_recommend", gpu="H100-SXM")["result"]["answer"]["techniques"]
    assert not any(row.get("measured") for row in techniques)
    keep(ctx, Verdict.FASTER, target="ch01:bias_gelu", candidate="wide_fused")
    best = ask(ctx, "aisp_recommend", gpu="H100-SXM")["result"]["answer"]["techniques"][0]
    assert (best["name"], best["run_id"]) == ("fused-kernels", "r_wide_fused")


def test_what_is_not_proven_saves_nothing(ctx: Context) -> None:
    keep(ctx, Verdict.INCONCLUSIVE, gpu=None)
    assert code(ctx, "aisp_bench_cost")[0] == "NO_PRICE"
    row = ask(ctx, "aisp_bench_cost", usd_per_hour=1.0)["result"]["answer"]["rows"][0]
    assert row["saved_usd_per_million_calls"] == 0
    roi = ask(ctx, "aisp_optimize_roi", calls_per_day=1.0, effort_usd=1.0, usd_per_hour=1.0)["result"]["answer"]
    assert roi["rows"][0].get("days_to_pay") is None


def test_nccl_variables_name_the_fact_that_asks_for_them() -> None:
    nothing = Topology(gpus=[], pairs=[], numa=[], nics=[], hcas=[], nearest_gpus={})
    assert nccl.variables(nothing, 1) == nccl.variables(nothing, 2) == []
    nics = [{"name": name, "kind": "ethernet"} for name in ("eth0", "docker0", "lo")]
    hcas = [{"device": f"mlx5_{i}", "port": 1, "state": state} for i, state in enumerate(("ACTIVE", "DOWN"))]
    pairs = [GpuPair(a=0, b=1, nvlink=False, read="chipset not supported")]
    place = Topology.model_validate({**nothing.model_dump(), "nics": nics, "hcas": hcas, "pairs": pairs})
    by_name = {item.name: item for item in nccl.variables(place, 2)}
    assert by_name["NCCL_IB_HCA"].value == "=mlx5_0"
    assert "mlx5_1" in by_name["NCCL_IB_HCA"].because
    assert by_name["NCCL_SOCKET_IFNAME"].value == "^lo,docker"
    assert by_name["NCCL_P2P_DISABLE"].value == "1"
    assert {item.name for item in nccl.variables(place, 1)} == {"NCCL_P2P_DISABLE"}


def test_every_target_of_the_catalogue_exists() -> None:
    from pathlib import Path

    root = Path(__file__).resolve().parents[2] / "benchmarks"
    for row in tables.techniques():
        if row.target is not None:
            chapter, _, name = row.target.partition(":")
            assert (root / chapter / f"baseline_{name}.py").is_file(), row.target
        assert set(row.conflicts) <= {other.name for other in tables.techniques()}
        assert row.effect[0] <= row.effect[1]


def test_the_utilities_of_the_command_line(cli_here: Any) -> None:
    arguments = ["--layers", "80", "--hidden", "8192", "--tokens", "4096", "--batch", "8", "--dtype", "fp8", "--json"]
    done = cli_here("bench", "utils", "--tool", "kv-cache", "--", *arguments)
    answer = json.loads(done.stdout)["result"]
    assert answer["answer"]["cache"]["total_bytes"] == 80 * 2 * 8192 * 4096 * 8  # one byte an element
    assert "times less" in answer["assumptions"][0]
    flags = ["--avg-power", "800", "--throughput", "1500", "--electricity-cost", "0.16", "--json"]
    done = cli_here("bench", "utils", "--tool", "cost-per-token", "--", *flags)
    cost = json.loads(done.stdout)["result"]["answer"]
    assert cost["electricity_usd_per_million_tokens"] == pytest.approx(0.0237, abs=5e-5)
    done = cli_here("bench", "utils", "--tool", "fortune")
    assert (done.returncode, "kv-cache" in done.stderr) == (2, True)


@pytest.mark.torch
@pytest.mark.slow
def test_measuring_here_agrees_with_the_prediction(cli: Any) -> None:
    pytest.importorskip("torch")
    for extra in ([], ["--checkpoint", "--kv-heads", "2"]):
        words = [
            "--layers",
            "2",
            "--hidden",
            "128",
            "--heads",
            "4",
            "--vocab",
            "1000",
            "--seq",
            "128",
            "--json",
            *extra,
        ]
        done = cli("distributed", "measure", *words, timeout=120)
        answer = json.loads(done.stdout)["result"]
        assert answer["peak"]["ratio"] == pytest.approx(1.0, abs=0.05)
        assert answer["step"]["measured"] > 0


@pytest.mark.parametrize(("typed", "sku"), [("H100", "H100-SXM"), ("a100", "A100-SXM-80GB"), ("GB200", "GB200")])
def test_a_family_of_gpus_means_its_sxm_card(ctx: Context, typed: str, sku: str) -> None:
    by_family, by_name = (
        ask(ctx, "aisp_distributed_plan", model="llama-3.1-8b", gpus=8, gpu=name)["result"] for name in (typed, sku)
    )
    assert by_family == by_name


def test_a_hint_is_no_ground_to_spend_money_on(ctx: Context) -> None:
    keep(ctx, Verdict.FASTER)
    (run,) = [ctx.store.run(Run, run_id) for run_id in ctx.store.run_ids()]
    hint = run.comparisons[0].model_copy(update={"replicates": 1})
    ctx.store.save_run(run.model_copy(update={"preset": "quick", "comparisons": [hint]}), None)
    assert code(ctx, "aisp_bench_cost")[0] == "NO_RUNS"
    techniques = ask(ctx, "aisp_recommend", gpu="H100-SXM")["result"]["answer"]["techniques"]
    assert not any(row.get("measured") for row in techniques)
