"""Whether a model fits: one call, one sentence, and the numbers behind it."""

from __future__ import annotations

from typing import Any

import plan_support
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


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_option_and_value_that_is_printed_exists_in_a_released_engine(ctx: Context, engine: str) -> None:
    known = plan_support.recorded(f"{engine}-options")
    questions: list[dict[str, Any]] = [
        {"model": "llama-3.3-70b", "gpu": "H100-SXM", "gpus": 8, "weights": weights}
        for weights in ("bf16", "fp8", "int4-awq", "int4-gptq", "int8-w8a8")
    ]
    questions += [
        {"model": "deepseek-r1", "gpu": "H200-SXM", "gpus": 16},
        {"model": "llama-3.1-405b", "gpu": "H100-SXM", "gpus": 16, "weights": "bf16"},
        {"model": "gpt-oss-120b", "gpu": "B200-SXM", "gpus": 4},
        {"model": "qwen3-32b", "gpu": "L40S", "gpus": 8, "kv_dtype": "fp8", "prefix_hit": 0.5, "chunk": 2048},
    ]
    for question in questions:
        answer = to_data(execute("aisp_inference_vllm", {**question, "engine": engine}, ctx))
        assert answer["status"] == "ok", answer
        start, serve, _, *words = answer["result"]["answer"]["command"].split()
        assert (start, serve, len(words) > 2) == (engine, "serve", True)
        for name, _, value in (word.partition("=") for word in words):
            # `--no-x` is the other half of a switch `--x`.
            assert name in known["options"] or name.replace("--no-", "--") in known["options"], name
            assert value in known["values"].get(name, [value]), f"{name}={value}"


def test_a_replica_over_nodes_is_started_so_that_the_engine_finds_them(ctx: Context) -> None:
    """vLLM refuses more GPUs than a node has unless told how to reach the others; SGLang waits for them."""
    args = {"model": "llama-3.1-405b", "gpu": "H100-SXM", "gpus": 16, "weights": "bf16"}
    answers = [execute("aisp_inference_vllm", {**args, "engine": name}, ctx) for name in ("vllm", "sglang")]
    vllm, sglang = (to_data(answer)["result"]["answer"]["command"].split() for answer in answers)
    assert {"--tensor-parallel-size=8", "--pipeline-parallel-size=2", "--distributed-executor-backend=ray"} <= set(vllm)
    assert {"--nnodes=2", "--node-rank=$NODE_RANK", "--dist-init-addr=$HEAD_NODE:20000"} <= set(sglang)
    one = to_data(execute("aisp_inference_vllm", {**args, "gpus": 8, "weights": "fp8"}, ctx))["result"]["answer"]
    assert "ray" not in one["command"]


def test_one_command_starts_no_more_replicas_than_engines_take_together(ctx: Context) -> None:
    """SGLang refuses --dp-size with --attn-dp-size, and over nodes; vLLM would share the experts of all replicas."""
    args = {"model": "deepseek-r1", "gpu": "H200-SXM", "gpus": 16, "weights": "fp8", "tensor": 8, "pipeline": 1}
    for engine in ("vllm", "sglang"):
        planned = to_data(execute("aisp_inference_vllm", {**args, "engine": engine}, ctx))["result"]
        rate, command = planned["answer"]["rate"], planned["answer"]["command"]
        assert (rate["replicas"], rate["layout"]["data_attention"]) == (2, True)
        assert "--data-parallel-size=8" in command or ("--attn-dp-size=8" in command and "--dp-size" not in command)
        assert "nnodes" not in command
        assert any("one of 2 servers, each on 8 GPUs" in text for text in planned["assumptions"])
    dense = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "gpus": 64, "engine": "sglang"}
    assert "--dp-size=8" in to_data(execute("aisp_inference_vllm", dense, ctx))["result"]["answer"]["command"]


def test_formats_are_those_that_engines_serve_on_the_gpu(ctx: Context) -> None:
    """A V100 was offered weights of 8 bits, which vLLM serves from compute capability 7.5 on."""
    assert fit(ctx, model="llama-3.1-8b", gpu="V100")["weights"] == "bf16"
    names = [row["name"] for row in fit(ctx, model="qwen3-32b", gpu="V100")["formats"]]
    assert names == ["bf16", "int4-gptq"]


def test_tensors_divide_the_heads_of_keys_too(ctx: Context) -> None:
    """Phi-4 has 40 heads and 10 of keys: vLLM stops at four tensors, which were planned."""
    words = to_data(execute("aisp_inference_vllm", {"model": "phi-4", "gpu": "A10", "gpus": 4}, ctx))["result"]
    assert "--tensor-parallel-size=2" in words["answer"]["command"]
    args = {"model": "phi-4", "gpu": "A10", "gpus": 4, "tensor": 4}
    assert to_data(execute("aisp_inference_vllm", args, ctx))["error"]["code"] == "NO_LAYOUT"


def test_attention_by_data_is_started_as_each_engine_does_it(ctx: Context) -> None:
    """The plan was attention by data over eight GPUs, and the command split it into eight tensors."""
    args = {"model": "deepseek-r1", "gpu": "H200", "gpus": 8, "concurrency": 256}
    words = {}
    for engine in ("vllm", "sglang"):
        answer = to_data(execute("aisp_inference_vllm", {**args, "engine": engine}, ctx))["result"]["answer"]
        assert answer["rate"]["layout"] == {"tensor": 8, "pipeline": 1, "data_attention": True}
        words[engine] = answer["command"].split()
    assert {"--tensor-parallel-size=1", "--data-parallel-size=8", "--max-num-seqs=32"} <= set(words["vllm"])
    assert {"--tp-size=8", "--attn-dp-size=8", "--max-running-requests=256"} <= set(words["sglang"])


def test_fp4_weights_are_served_where_the_gpu_multiplies_none(ctx: Context) -> None:
    answer = fit(ctx, model="llama-3.3-70b", gpu="H200", weights="fp4")
    assert (answer["fits"], answer["weights"]) == (True, "nvfp4-w16")


def test_a_model_that_does_not_fit_says_what_would(ctx: Context) -> None:
    answer = fit(ctx, model="Llama-3.3-70B", gpu="L40S")
    assert answer["fits"] is False
    assert "68 GiB in fp8, and 2 GPUs hold them. A checkpoint in int4-awq (38 GiB) would fit" in answer["headline"]
    assert fit(ctx, model="Llama-3.3-70B", gpu="L40S", weights="int4")["fits"] is True


@pytest.mark.parametrize(("model", "gpu", "gpus"), [("llama-3.1-8b", "T4", 1), ("llama-3.1-405b", "A100", 8)])
def test_a_gpu_without_fp8_products_holds_weights_of_8_bits(ctx: Context, model: str, gpu: str, gpus: int) -> None:
    answer = fit(ctx, model=model, gpu=gpu, gpus=gpus)
    assert (answer["fits"], answer["weights"]) == (True, "fp8-w16")


@pytest.mark.parametrize("gpu", ["H100-SXM", "B200-SXM", "MI300X", "L40S", "A100-SXM-80GB"])
def test_formats_servers_and_fits_are_one_model(ctx: Context, gpu: str) -> None:
    """A 70B on two H100: formats compared with a 16-bit cache on other numbers of GPUs than the server had."""
    args: dict[str, Any] = {"gpu": gpu, "prompt": 2048, "output": 512}
    for model in ("llama-3.1-70b", "qwen3-8b", "deepseek-r1", "gpt-oss-120b", "qwen3-32b", "mixtral-8x7b"):
        answer = to_data(execute("aisp_inference_quantization", {**args, "model": model}, ctx))["result"]["answer"]
        asked = {**args, "model": model, "gpus": answer["gpus"]}
        plan = to_data(execute("aisp_inference_vllm", asked, ctx))["result"]["answer"]
        assert plan["weights"] == answer["chosen"]
        assert f" {answer['chosen']}, " in answer["headline"]
        assert fit(ctx, **asked)["weights"] == answer["chosen"]
        for row in (*answer["formats"][:2], answer["formats"][-1]):
            served = to_data(execute("aisp_inference_vllm", {**asked, "weights": row["name"]}, ctx))
            if row["tokens_per_s_per_gpu"] is None:
                assert served["error"]["code"] == "DOES_NOT_FIT"
                assert row["least_gpus"] is None or row["least_gpus"] > answer["gpus"]
                continue
            rate = served["result"]["answer"]["rate"]
            assert (row["tokens_per_s_per_gpu"], row["concurrency"]) == (
                rate["tokens_per_s_per_gpu"],
                rate["concurrency"] * rate["replicas"],
            )
            assert row["least_gpus"] <= answer["gpus"]
