"""Plans corrected by own runs: of the same model and GPU only, and beside the uncorrected figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.envelope import Envelope, Meta, Status
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data
from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.job_state import JobState

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


def test_a_job_of_serve_bench_brings_its_load(ctx: Context) -> None:
    metrics = [{"name": name, "unit": "s", "value": value, "interval": [], "repeats": [value]}
               for name, value in (("ttft", 0.2), ("tpot", 0.03), ("latency", 4.0))]  # fmt: skip
    server = {"url": "http://x", "model": "m", "metrics": metrics, "output_tokens": 64.0, "requests": 40, "failed": 0}
    load = {"concurrency": 8, "requests": 40, "output_tokens": 128, "prompt_words": 100, "repeats": 1}
    known = {"client": "vllm", "ttft_ms": [1, 1], "tpot_ms": [1, 1], "sentence": ""}
    bench = {"sentence": "", "servers": [server], "pair": None, "self_test": known, "load": load, "definitions": "",
             "notes": []}  # fmt: skip
    _ended(ctx, "j_own", "aisp_serve_bench", bench)
    plan = {key: value for key, value in SERVED.items() if key != "output"}
    fitted = ask(ctx, "aisp_plan_calibrate", **{"from": "j_own"}, **plan)["fitted"]
    assert {row["figure"]: row["measured"] for row in fitted} == {"rate.ttft_s": 0.2, "rate.tpot_s": 0.03}
    _ended(ctx, "j_other", "aisp_hw_nccl", {})
    refused = to_data(execute("aisp_plan_calibrate", {"from": "j_other", **SERVED}, ctx))
    assert refused["error"]["code"] == "NOT_A_SERVING_RUN"


def _ended(ctx: Context, job_id: str, tool: str, result: dict[str, Any]) -> None:
    folder = str(ctx.settings.home / "runs" / job_id)
    job = Job(id=job_id, tool=tool, params={}, state=JobState.QUEUED, timeout_s=9, created_at=1.0, run_dir=folder)
    ctx.store.insert_job(job, python="", cwd="", env={})
    assert ctx.store.queue.claim(job_id, 9, {"pid": 1, "pid_start": 1, "namespace": "x"})
    meta = Meta(duration_ms=1, version="0", at="now")
    ctx.store.finish(job_id, Envelope(tool=tool, status=Status.OK, result=result, meta=meta))
    ctx.store.queue.end(job_id, JobState.SUCCEEDED, exit_code=0)


def test_the_median_step_of_a_profile_calibrates(ctx: Context) -> None:
    trace = Path(__file__).parents[1] / "profile" / "data" / "rank0.kineto.json.gz"
    rows = ask(ctx, "aisp_plan_calibrate", **{"from": str(trace)}, **TRAINED)["fitted"]
    assert rows[0]["measured"] == pytest.approx(0.00174, abs=1e-5)
