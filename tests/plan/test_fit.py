"""Whether a model fits: one call, one sentence, and the numbers behind it."""

from __future__ import annotations

from typing import Any

import pytest

from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data


def fit(ctx: Context, **args: Any) -> dict[str, Any]:
    answer = to_data(execute("aisp_fit", args, ctx))
    assert answer["status"] == "ok", answer
    result: dict[str, Any] = answer["result"]["answer"]
    return result


def test_a_model_that_fits_has_a_rate_a_command_and_its_least_number_of_gpus(ctx: Context) -> None:
    answer = fit(ctx, model="Llama-3.3-70B", gpu="L40S", gpus=4)
    assert answer["headline"].startswith("Yes: llama-3.3-70b fits on 4 x L40S in bf16, with room for ")
    assert answer["headline"].endswith(" 2 would hold it.")
    assert "--tensor-parallel-size=4" in answer["command"]
    assert 5 < answer["tokens_per_s_alone"] < answer["tokens_per_s"]
    served = to_data(execute("aisp_inference_vllm", {"model": "Llama-3.3-70B", "gpu": "L40S", "gpus": 4}, ctx))
    assert answer["tokens_per_s"] == served["result"]["answer"]["rate"]["tokens_per_s"]


def test_a_model_that_does_not_fit_says_what_would(ctx: Context) -> None:
    answer = fit(ctx, model="Llama-3.3-70B", gpu="L40S")
    assert answer["fits"] is False
    assert "68 GiB in fp8, and 2 GPUs hold them. A checkpoint in int4-awq (38 GiB) would fit" in answer["headline"]
    assert fit(ctx, model="Llama-3.3-70B", gpu="L40S", weights="int4")["fits"] is True


@pytest.mark.parametrize(("model", "gpu", "gpus"), [("llama-3.1-8b", "T4", 1), ("llama-3.1-405b", "A100", 8)])
def test_a_gpu_without_fp8_products_holds_weights_of_8_bits(ctx: Context, model: str, gpu: str, gpus: int) -> None:
    answer = fit(ctx, model=model, gpu=gpu, gpus=gpus)
    assert (answer["fits"], answer["weights"]) == (True, "fp8-w16")
