"""Inputs that no planner may answer: each ends in a usage error that names what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data

PLAN = {"model": "llama-3.1-8b", "gpus": 8, "gpu": "H100-SXM"}
LARGE = {"model": "llama-3.1-405b", "gpus": 512, "gpu": "H100-SXM", "batch": 512}
SCALE = {"params_b": 7, "layers": 32, "hidden": 4096, "gpus": 8, "batch": 64, "gpu": "H100-SXM"}
SERVE = {"model": "llama-3.1-8b", "gpu": "H100-SXM"}
CACHE = {"model": "llama-3.1-8b"}
NAN, INF = float("nan"), float("inf")


def shape(attention: dict[str, Any] | None = None, mlp: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A plan of a small described model with some fields replaced."""
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128, "layers": 32, **(attention or {})}
    sizes = {"layers": 32, "hidden": 4096, "vocab": 32000, "attention": heads, "mlp": {"width": 11008, **(mlp or {})}}
    return {"architecture": {**sizes, **more}, "gpus": 8, "gpu": "H100-SXM"}


def moe(**more: int) -> dict[str, Any]:
    return shape(mlp={"experts": {"count": 8, "active": 2, "ffn": 1024, **more}})


def calculate(question: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "values": list(values), **more}


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("aisp_distributed_plan", {**PLAN, "gpus": 0}, "INVALID_ARGUMENT", "gpus"),
    ("aisp_distributed_plan", {**PLAN, "gpus": -8}, "INVALID_ARGUMENT", "gpus"),
    ("aisp_distributed_plan", {**PLAN, "gpus": 10**9}, "INVALID_ARGUMENT", "gpus"),
    ("aisp_distributed_plan", {**PLAN, "seq": 0}, "INVALID_ARGUMENT", "seq"),
    ("aisp_distributed_plan", {**PLAN, "seq": 131_073}, "CONTEXT_LIMIT", "131,072"),
    ("aisp_distributed_plan", {**PLAN, "seq": 10**12}, "INVALID_ARGUMENT", "seq"),
    ("aisp_distributed_plan", {**PLAN, "batch": -1}, "INVALID_ARGUMENT", "batch"),
    ("aisp_distributed_plan", {**PLAN, "batch": 4, "tensor": 1, "context": 1, "pipeline": 1}, "NO_LAYOUT", "replicas"),
    ("aisp_distributed_plan", {**PLAN, "tensor": 3}, "NO_LAYOUT", "heads"),
    ("aisp_distributed_plan", {**PLAN, "tensor": 16}, "NO_LAYOUT", "16"),
    ("aisp_distributed_plan", {**PLAN, "pipeline": 33}, "NO_LAYOUT", "32 layers"),
    ("aisp_distributed_plan", {**PLAN, "pipeline": 3}, "NO_LAYOUT", "does not divide 8 GPUs"),
    ("aisp_distributed_plan", {**PLAN, "pipeline": 8, "batch": 64, "virtual_stages": 100}, "NO_LAYOUT", "100 chunks"),
    ("aisp_distributed_plan", {**LARGE, "pipeline": 64, "virtual_stages": 3, "tensor": 8}, "NO_LAYOUT", "126 layers"),
    ("aisp_distributed_plan", {**PLAN, "micro_batch": 7, "tensor": 8}, "NO_LAYOUT", "microbatch 7"),
    ("aisp_distributed_plan", {**PLAN, "expert": 4, "tensor": 1, "batch": 8}, "NO_LAYOUT", "expert 4"),
    ("aisp_distributed_plan", {**PLAN, "gpus": 37, "batch": 8}, "NO_LAYOUT", "batch of 8"),
    ("aisp_distributed_plan", {**PLAN, "zero": 3, "tensor": 8, "batch": 8}, "NO_LAYOUT", "several data ranks"),
    ("aisp_distributed_plan", {**PLAN, "zero": 4}, "INVALID_ARGUMENT", "zero"),
    ("aisp_distributed_plan", {**PLAN, "lora_rank": 0}, "INVALID_ARGUMENT", "lora_rank"),
    ("aisp_distributed_plan", {**PLAN, "network_gb_s": 0.0}, "INVALID_ARGUMENT", "network_gb_s"),
    ("aisp_distributed_plan", {**PLAN, "network_gb_s": NAN}, "INVALID_ARGUMENT", "network_gb_s"),
    ("aisp_distributed_plan", {**PLAN, "network_gb_s": INF}, "INVALID_ARGUMENT", "network_gb_s"),
    ("aisp_distributed_plan", {**PLAN, "precision": "int1"}, "INVALID_ARGUMENT", "precision"),
    ("aisp_distributed_plan", {**PLAN, "gpu": "A100-SXM-80GB", "precision": "fp8"}, "NO_PEAK", "fp8"),
    ("aisp_distributed_plan", {**PLAN, "gpu": "H9000"}, "UNKNOWN_GPU", "H9000"),
    ("aisp_distributed_plan", {**PLAN, "model": "gpt-9"}, "UNKNOWN_MODEL", "gpt-9"),
    ("aisp_distributed_plan", {**PLAN, "model": "./nosuch/config.json"}, "BAD_CONFIG", "config.json"),
    ("aisp_distributed_plan", {**PLAN, "model": "/dev/zero"}, "BAD_CONFIG", "not a regular file"),
    ("aisp_distributed_plan", {**PLAN, "model": "/proc/self/mem"}, "BAD_CONFIG", "cannot be read"),
    ("aisp_distributed_plan", {"gpus": 8, "gpu": "H100-SXM"}, "NO_MODEL", "model"),
    ("aisp_distributed_plan", {**LARGE, "gpus": 8, "batch": 8}, "DOES_NOT_FIT", "GiB"),
    ("aisp_distributed_plan", shape(layers=-32), "BAD_ARCHITECTURE", "layers"),
    ("aisp_distributed_plan", shape(layers=10**9), "BAD_ARCHITECTURE", "layers"),
    ("aisp_distributed_plan", shape(hidden=0), "BAD_ARCHITECTURE", "hidden"),
    ("aisp_distributed_plan", shape(vocab=-1), "BAD_ARCHITECTURE", "vocab"),
    ("aisp_distributed_plan", shape(attention={"kv_heads": 0}), "BAD_ARCHITECTURE", "kv_heads"),
    ("aisp_distributed_plan", shape(attention={"kv_heads": 5}), "BAD_ARCHITECTURE", "key-value"),
    ("aisp_distributed_plan", shape(attention={"head_dim": NAN}), "INVALID_ARGUMENT", "finite"),
    ("aisp_distributed_plan", shape(attention={"layers": 33}), "BAD_ARCHITECTURE", "33 attending"),
    ("aisp_distributed_plan", shape(attention={"window": {"tokens": 9, "layers": 40}}), "BAD_ARCHITECTURE", "window"),
    ("aisp_distributed_plan", shape(mlp={"width": -5}), "BAD_ARCHITECTURE", "width"),
    ("aisp_distributed_plan", shape(mlp={"depth": 5}), "BAD_ARCHITECTURE", "depth"),
    ("aisp_distributed_plan", moe(active=9), "BAD_ARCHITECTURE", "9 active"),
    ("aisp_distributed_plan", moe(dense_layers=33), "BAD_ARCHITECTURE", "33 dense"),
    ("aisp_distributed_plan", moe(shared=-1), "BAD_ARCHITECTURE", "shared"),
    ("aisp_predict_scaling", {**SCALE, "virtual_stages": 100, "pipeline": 2}, "BAD_LAYOUT", "100 chunks"),
    ("aisp_predict_scaling", {**SCALE, "pipeline": 64, "gpus": 64}, "BAD_LAYOUT", "32 layers"),
    ("aisp_predict_scaling", {**SCALE, "tensor": 3, "gpus": 9}, "BAD_LAYOUT", "tensor 3"),
    ("aisp_predict_scaling", {**SCALE, "batch": 63}, "BAD_LAYOUT", "63"),
    ("aisp_predict_scaling", {**SCALE, "gpus": 16}, "NO_LINK", "nodes"),
    ("aisp_predict_scaling", {**SCALE, "gpu": "L40S", "gpus": 1}, "NO_CALIBRATION", "Ada"),
    ("aisp_predict_scaling", {**SCALE, "gpu": "MI300X"}, "NO_CALIBRATION", "CDNA 3"),
    ("aisp_predict_scaling", {**SCALE, "params_b": 0.001}, "BAD_ARCHITECTURE", "attention alone"),
    ("aisp_predict_scaling", {**SCALE, "params_b": -7}, "INVALID_ARGUMENT", "params_b"),
    ("aisp_predict_scaling", {**SCALE, "model": "llama-3.1-8b"}, "TWO_SHAPES", "not both"),
    ("aisp_predict_scaling", {**SCALE, "measured_step_s": 1e-9}, "BELOW_ROOF", "peak"),
    ("aisp_analyze_scaling", {"n": [0.5, 1.0, 1e300], "time_s": [5e-324, 1.0, 1e308]}, "BAD_POINTS", "between"),
    ("aisp_analyze_scaling", {"n": [1e9, 2.0, 4.0], "throughput": [1.0, 4.0, 1.0]}, "BAD_POINTS", "far apart"),
    ("aisp_analyze_scaling", {"n": [1.0, 1.0], "throughput": [1.0, 2.0]}, "BAD_POINTS", "two different n"),
    ("aisp_distributed_nccl", {"nodes": 0}, "INVALID_ARGUMENT", "nodes"),
    ("aisp_distributed_nccl", {"nodes": 4, "fabric": "ib-0x8"}, "BAD_FABRIC", "ib-0x8"),
    ("aisp_distributed_nccl", {"nodes": 4, "fabric": "fast"}, "BAD_FABRIC", "fast"),
    ("aisp_distributed_nccl", {"nodes": 4, "nvlink": 900.0}, "BAD_FABRIC", "fabric"),
    ("aisp_distributed_nccl", {"nodes": 4, "fabric": "ib-400x8", "nvlink": -1.0}, "INVALID_ARGUMENT", "nvlink"),
    ("aisp_distributed_nccl", {"sizes_mb": [-1.0]}, "INVALID_ARGUMENT", "sizes_mb"),
    ("aisp_launch_plan", {"command": ["python"]}, "BAD_COMMAND", "python"),
    ("aisp_launch_plan", {"command": ["python3", "-c", "print()"]}, "BAD_COMMAND", "script"),
    ("aisp_calculate", calculate("gemm", "m=0", "n=1", "k=1"), "BAD_VALUE", "m = 0"),
    ("aisp_calculate", calculate("gemm", "m=nan", "n=1", "k=1"), "BAD_VALUE", "NAME=NUMBER"),
    ("aisp_calculate", calculate("gemm", "m=1", "n=1"), "MISSING_VALUE", "lacks k"),
    ("aisp_calculate", calculate("gemm", "m=1", "m=2", "n=1", "k=1"), "BAD_VALUE", "once"),
    ("aisp_calculate", calculate("gemm", "rows=4"), "UNKNOWN_VALUE", "rows"),
    ("aisp_calculate", calculate("amdahl", "parallel=1.5", "n=8"), "BAD_VALUE", "parallel"),
    ("aisp_calculate", calculate("speculative", "accept=1", "draft=4", "draft_cost=0.1"), "BAD_VALUE", "accept"),
    ("aisp_calculate", calculate("mfu", "tflops=2000", gpu="H100-SXM"), "BAD_VALUE", "exceed"),
    ("aisp_calculate", calculate("all-reduce", "n=-8", "bytes=1"), "BAD_VALUE", "n = -8"),
    ("aisp_calculate", calculate("states", "total=1e9", "zero=4"), "BAD_VALUE", "zero = 4"),
    ("aisp_calculate", calculate("bubble", "stages=4"), "MISSING_VALUE", "microbatches"),
    ("aisp_calculate", calculate("checkpoint", "hours=0", "failures=1"), "BAD_VALUE", "hours = 0"),
    ("aisp_calculate", calculate("fortune"), "INVALID_ARGUMENT", "question"),
    ("aisp_distributed_plan", {**PLAN, "precision": "nf4"}, "FROZEN_ONLY", "adapters"),
    ("aisp_distributed_measure", {"hidden": 100, "heads": 7}, "BAD_SHAPE", "heads"),
    ("aisp_launch_plan", {"command": ["train.py"], "launchers": ["ssh"]}, "INVALID_ARGUMENT", "launchers"),
    ("aisp_inference_vllm", {**SERVE, "gpus": 0}, "INVALID_ARGUMENT", "gpus"),
    ("aisp_inference_vllm", {**SERVE, "prompt": 200_000}, "CONTEXT_LIMIT", "131,072"),
    ("aisp_inference_vllm", {**SERVE, "output": 10**9}, "INVALID_ARGUMENT", "output"),
    ("aisp_inference_vllm", {**SERVE, "prefix_hit": 1.0}, "INVALID_ARGUMENT", "prefix_hit"),
    ("aisp_inference_vllm", {**SERVE, "spread": NAN}, "INVALID_ARGUMENT", "finite"),
    ("aisp_inference_vllm", {**SERVE, "lengths": "10:-1"}, "BAD_LENGTHS", "10:-1"),
    ("aisp_inference_vllm", {**SERVE, "weights": "int1"}, "NO_FORMAT", "int1"),
    ("aisp_inference_vllm", {**SERVE, "gpu": "V100", "weights": "fp8"}, "NO_PEAK", "fp8"),
    ("aisp_inference_vllm", {**SERVE, "ttft_s": 1.0}, "OFFLINE_LIMITS", "offline"),
    ("aisp_inference_vllm", {**SERVE, "batch": 1, "concurrency": 1}, "TWO_BATCHES", "concurrency"),
    ("aisp_inference_vllm", {**SERVE, "tensor": 3}, "NO_LAYOUT", "Tensor 3"),
    ("aisp_inference_vllm", {**SERVE, "scenario": "server", "tpot_s": 1e-6}, "LIMITS_MISSED", "tpot_s"),
    ("aisp_inference_vllm", {**SERVE, "model": "llama-3.1-405b"}, "DOES_NOT_FIT", "GiB"),
    ("aisp_inference_vllm", {**SERVE, "draft": -1}, "INVALID_ARGUMENT", "draft"),
    ("aisp_inference_vllm", {**SERVE, "chunk": 0}, "INVALID_ARGUMENT", "chunk"),
    ("aisp_inference_vllm", {**SERVE, "provider": "nobody"}, "NO_PRICE", "nobody"),
    ("aisp_inference_kv_cache", {**CACHE, "tokens": 0}, "INVALID_ARGUMENT", "tokens"),
    ("aisp_inference_kv_cache", {**CACHE, "dtype": "int2"}, "INVALID_ARGUMENT", "dtype"),
    ("aisp_inference_kv_cache", {**CACHE, "budget_gib": 1.0, "blocks": 1}, "TWO_BUDGETS", "blocks"),
    ("aisp_inference_kv_cache", {**CACHE, "budget_gib": 1e300}, "BAD_BUDGET", "budget_gib"),
    ("aisp_inference_kv_cache", {**CACHE, "layers": 3}, "TWO_SHAPES", "not both"),
    ("aisp_inference_kv_cache", {"layers": 32}, "NO_SHAPE", "kv_heads"),
    ("aisp_inference_kv_cache", {"layers": 32, "hidden": 4096, "heads": 33}, "BAD_SHAPE", "4096"),
    ("aisp_inference_kv_cache", {**CACHE, "tokens": 10**18}, "INVALID_ARGUMENT", "tokens"),
    ("aisp_cost_estimate", {"usd_per_gpu_hour": 1e300, "throughput": 1e-300}, "TOO_LARGE", "larger"),
    ("aisp_inference_quantization", {"model": "gpt-9", "gpu": "H100-SXM"}, "UNKNOWN_MODEL", "gpt-9"),
    ("aisp_inference_quantization", {**CACHE, "gpu": "H9000"}, "UNKNOWN_GPU", "H9000"),
    ("aisp_cost_estimate", {"gpu": "H100-SXM", "hours": -1.0}, "INVALID_ARGUMENT", "hours"),
    ("aisp_cost_estimate", {"gpu": "H100-SXM", "throughput": NAN}, "INVALID_ARGUMENT", "finite"),
    ("aisp_cost_estimate", {"gpu": "H100-SXM", "provider": "nobody"}, "NO_PRICE", "nobody"),
    ("aisp_cluster_slurm", {"command": ["train.py"], "minutes": 0}, "INVALID_ARGUMENT", "minutes"),
    ("aisp_cluster_slurm", {"command": ["train.py"], "partition": "a b; rm"}, "INVALID_ARGUMENT", "partition"),
    ("aisp_optimize_roi", {"calls_per_day": 0.0, "effort_usd": 1.0}, "INVALID_ARGUMENT", "calls_per_day"),
    ("aisp_bench_cost", {"limit": 0}, "INVALID_ARGUMENT", "limit"),
    ("aisp_optimize_techniques", {"goal": "fame"}, "INVALID_ARGUMENT", "goal"),
    ("aisp_recommend", {"gpu": "H9000"}, "UNKNOWN_GPU", "H9000"),
]
PLANNERS = {
    "aisp_distributed_plan", "aisp_distributed_measure", "aisp_distributed_nccl", "aisp_launch_plan",
    "aisp_cluster_slurm", "aisp_predict_scaling", "aisp_analyze_scaling", "aisp_calculate", "aisp_inference_vllm",
    "aisp_inference_kv_cache", "aisp_inference_quantization", "aisp_cost_estimate", "aisp_bench_cost",
    "aisp_optimize_roi", "aisp_optimize_techniques", "aisp_recommend",
}  # fmt: skip


def test_there_are_sixty_of_them_over_every_planner() -> None:
    assert len(BAD) >= 60
    assert {tool for tool, _, _, _ in BAD} == PLANNERS


@pytest.mark.parametrize(("tool", "args", "code", "names"), BAD)
def test_a_bad_input_is_refused_with_its_reason(
    ctx: Context, tool: str, args: dict[str, Any], code: str, names: str
) -> None:
    answer = to_data(execute(tool, args, ctx))
    assert answer["status"] == "error", answer
    error = answer["error"]
    assert error["code"] == code, error
    assert names in error["message"] + (error.get("hint") or ""), error
