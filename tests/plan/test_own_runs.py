"""Plans corrected by own runs: of the same model and GPU only, and beside the uncorrected figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data

SERVED = {"model": "qwen3-32b", "gpu": "H100-SXM", "gpus": 2, "tensor": 2, "prompt": 1024, "output": 128}
TRAINED = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "gpus": 8, "batch": 64, "seq": 4096}


def ask(ctx: Context, tool: str, **args: Any) -> dict[str, Any]:
    answer = to_data(execute(tool, args, ctx))
    assert answer["status"] == "ok", answer
    found: dict[str, Any] = answer["result"]
    return found


@pytest.fixture
def result_file(tmp_path: Path) -> str:
    """A result of `vllm bench serve --max-concurrency 8`."""
    file = tmp_path / "own.json"
    figures = {"mean_ttft_ms": 120.0, "median_ttft_ms": 115.0, "mean_tpot_ms": 24.0, "median_tpot_ms": 23.5}
    counts = {"completed": 100, "num_prompts": 100, "max_concurrency": 8, "total_output_tokens": 12800}
    file.write_text(json.dumps({"model_id": "Qwen/Qwen3-32B", "output_throughput": 420.0, **figures, **counts}))
    return str(file)


def test_a_served_run_corrects_plans_of_its_model_and_gpu(ctx: Context, result_file: str) -> None:
    before = ask(ctx, "aisp_inference_vllm", **SERVED, concurrency=16)["answer"]
    assert before.get("calibrated", []) == []
    fitted = {
        row["figure"]: row for row in ask(ctx, "aisp_plan_calibrate", **{"from": result_file}, **SERVED)["fitted"]
    }
    assert fitted["rate.tpot_s"]["measured"] == pytest.approx(0.024)
    result = ask(ctx, "aisp_inference_vllm", **SERVED, concurrency=16)
    assert result["answer"]["rate"] == before["rate"]  # the uncalibrated figures stay
    corrected = {row["figure"]: row for row in result["answer"]["calibrated"]}
    ratio = fitted["rate.tpot_s"]["measured_over_predicted"]
    assert corrected["rate.tpot_s"]["value"] == pytest.approx(before["rate"]["tpot_s"] * ratio, rel=1e-3)
    band = result["band"]["rate.tpot_s"]
    assert corrected["rate.tpot_s"]["p90"] / corrected["rate.tpot_s"]["p10"] < band["p90"] / band["p10"]
    for other in ({"model": "qwen3-14b"}, {"gpu": "H200-SXM"}, {"concurrency": 128}):
        assert ask(ctx, "aisp_inference_vllm", **{**SERVED, "concurrency": 16, **other})["answer"]["calibrated"] == []


def test_a_training_step_corrects_plans_of_its_stack(ctx: Context) -> None:
    calibrated = ask(ctx, "aisp_plan_calibrate", **TRAINED, step_s=4.0)
    assert "llama-3.1-8b@eager" in calibrated["sentence"]
    plan = ask(ctx, "aisp_distributed_plan", **TRAINED)["answer"]
    assert plan["calibrated"][0]["value"] == pytest.approx(4.0)
    assert plan["best"]["step"]["total_s"] != pytest.approx(4.0)
    assert ask(ctx, "aisp_distributed_plan", **TRAINED, stack="megatron")["answer"]["calibrated"] == []


def test_a_file_without_serving_figures_is_refused(ctx: Context, tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    runs = [{"command": "a", "mean": 1.0, "stddev": 0.1, "median": 1.0, "min": 0.9, "max": 1.1, "times": [1.0, 1.1]}]
    file.write_text(json.dumps({"results": runs}))
    answer = to_data(execute("aisp_plan_calibrate", {"from": str(file), **SERVED}, ctx))
    assert answer["error"]["code"] == "NO_SERVING_FIGURES"


def test_a_calibration_needs_a_run(ctx: Context) -> None:
    assert to_data(execute("aisp_plan_calibrate", SERVED, ctx))["error"]["code"] == "NO_RUN"
