"""Names of models: aliases, Hub repositories, a config.json by path. Totals are those of published checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import kv, lookup, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute


@pytest.mark.parametrize(
    ("name", "layers", "served"),
    [
        ("Llama-3.3-70B", "llama-3.1-70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("DeepSeek-R1", "deepseek-v3", "deepseek-ai/DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3", "deepseek-ai/DeepSeek-R1-0528"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B-Instruct-2507"),
        ("llama-2-70b-chat-hf", None, "meta-llama/Llama-2-70b-chat-hf"),
        ("mixtral-8x7b-instruct-v0.1", "mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("llama-3.1-8b", None, "meta-llama/Llama-3.1-8B"),
        ("llama-3.1-8b-instruct", "llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)  # fmt: skip
def test_commands_and_headlines_name_the_model_that_was_asked(
    ctx: Context, name: str, layers: str | None, served: str
) -> None:
    answer = execute("aisp_inference_vllm", {"model": name, "gpus": 64, "gpu": "B200-SXM"}, ctx).result
    assert answer["answer"]["command"].startswith(f"vllm serve {served} --")
    assert f"--model {served} " in answer["check_here"]
    assert answer["answer"]["headline"].startswith(name.rpartition("/")[2].lower())
    assert (layers is not None) == any(f"has the layers of {layers}" in text for text in answer["assumptions"])


@pytest.mark.parametrize(
    ("name", "layers", "weights", "served"),
    [
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8", "Qwen/Qwen3-32B-FP8"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3", "nvfp4", "nvidia/DeepSeek-V3.1-NVFP4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "int4-gptq", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "int4-awq", None),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "llama-3.1-70b", "fp8", None),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b", None, "Qwen/Qwen3-30B-A3B-Thinking-2507"),
        ("llama3.1:8b", "llama-3.1-8b", None, "meta-llama/Llama-3.1-8B"),
        ("gemma3:27b", "gemma-3-27b", None, "google/gemma-3-27b-it"),
        ("gpt2", "gpt2", None, "openai-community/gpt2"),  # not the largest one of its paper
    ],
)
def test_repositories_of_quantised_weights_and_names_without_hyphens_are_known(
    name: str, layers: str, weights: str | None, served: str | None
) -> None:
    arch = lookup.architecture(name)
    assert (arch.listed, arch.weights, arch.checkpoint) == (layers, weights, served or name)


def test_a_later_release_takes_its_own_context_and_is_said_to_be_borrowed() -> None:
    assert lookup.architecture("Qwen/Qwen3-4B-Instruct-2507").context == 262144
    unknown = lookup.architecture("Qwen/Qwen3-14B-Thinking-2511")
    assert unknown.context is None  # longer than that of the release whose layers it has, perhaps
    assert "with the layers of qwen3-14b, to which its name points: check them." in unknown.assumed[-1]
    for name in ("deepseek-r1:70b", "Qwen3-8B-GGUF", "mistral"):  # another model, another format, several models
        with pytest.raises(UsageError):
            lookup.architecture(name)


def test_a_name_of_another_size_than_its_configuration_is_noted(tmp_path: Path) -> None:
    """Zamba2 was planned with 2.9 times its parameters, and nothing said so."""
    for name, noted in (("Zamba2-2.7B", True), ("Llama-3.1-70B-Instruct", False), ("my-model", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
        arch = lookup.architecture(str(tmp_path / name))
        assert noted == any("Its name says 2.7B parameters" in text for text in arch.assumed)


def test_a_model_without_published_weights_has_no_repository(ctx: Context) -> None:
    for name, said in (("palm-540b", True), ("llama-3.1-8b", False)):
        answer = execute("aisp_inference_vllm", {"model": name, "gpus": 64, "gpu": "B200-SXM"}, ctx).result
        assert said == any("is no known repository: name the one" in text for text in answer["assumptions"])


def test_every_alias_leads_to_a_listed_model_and_shadows_none() -> None:
    assert {alias.model for alias in tables.aliases().values()} <= set(tables.models())
    assert not set(tables.aliases()) & set(tables.models())
    with pytest.raises(UsageError, match=r"llama-3\.3-71b"):
        lookup.architecture("llama-3.3-71b")


LLAMA = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
         "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 128256,
         "max_position_embeddings": 131072}  # fmt: skip
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
KIMI = {"model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 61, "vocab_size": 163840,
        "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
        "max_position_embeddings": 131072, **LATENT}  # fmt: skip
DENSE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
         "vocab_size": 100}  # fmt: skip
QWEN = {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 48,
        "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8}  # fmt: skip


def described(tmp_path: Path, config: dict[str, Any]) -> Architecture:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return lookup.architecture(str(tmp_path / "config.json"))


NEMOTRON = {"model_type": "nemotron_h", "hidden_size": 2688, "intermediate_size": 1856, "moe_intermediate_size": 1856,
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52,
            "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072,
            "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6, "mlp_hidden_act": "relu2",
            "moe_shared_expert_intermediate_size": 3712, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,
            "ssm_state_size": 128, "conv_kernel": 4}  # fmt: skip
QWEN_HYBRID = {"model_type": "qwen3_5_moe", "text_config": {
    "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "moe_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512, "full_attention_interval": 4,
    "attn_output_gate": True, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_key_head_dim": 128, "linear_conv_kernel_dim": 4}}  # fmt: skip
GEMMA = {"model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
         "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
         "num_global_key_value_heads": 4, "attention_k_eq_v": True, "sliding_window": 1024, "vocab_size": 262144,
         "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (LLAMA, 70_553_706_496), (KIMI, 1_026_408_232_448), (QWEN, 30_532_122_624), (NEMOTRON, 31_577_940_288),
        (QWEN_HYBRID, 34_660_610_688), (GEMMA, 30_697_345_260),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 100},
         108_544),
        ({**DENSE, "model_type": "opt", "ffn_dim": 128, "max_position_embeddings": 32}, 75_648),
        ({**DENSE, "model_type": "cohere"}, 88_512), ({**DENSE, "model_type": "smollm3"}, 88_640),
        ({**DENSE, "model_type": "olmo2"}, 95_296), ({**DENSE, "model_type": "gemma2"}, 88_896),
        ({**DENSE, "model_type": "glm4", "num_key_value_heads": 2}, 87_360),
    ],
)  # fmt: skip
def test_a_configuration_by_path_has_the_published_total(tmp_path: Path, config: dict[str, Any], total: int) -> None:
    arch = described(tmp_path, config)
    assert parameters.total(arch) == total
    assert lookup.architecture(str(tmp_path)).hidden == arch.hidden
    assert kv.cache(arch, 1024, 1, "bf16").total_bytes > 0


@pytest.mark.parametrize(
    ("config", "total"),
    [  # parameters of the class of transformers 5.24.0 with these defaults
        ({"model_type": "nanochat", "hidden_size": 768, "intermediate_size": 8192, "num_attention_heads": 6,
          "num_hidden_layers": 12, "vocab_size": 50304, "hidden_act": "relu2"}, 256_573_440),
        ({"model_type": "doge", "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 8,
          "num_hidden_layers": 32, "vocab_size": 32768, "is_moe": False, "num_experts": 16384,
          "num_experts_per_tok": 64}, 403_055_872),
        ({"model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [16384] * 35, "head_dim": 256,
          "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 35, "vocab_size": 262400,
          "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256, "tie_word_embeddings": True},
         6_835_235_568),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_kinds_of_2026_have_the_parameters_of_their_class(tmp_path: Path, config: dict[str, Any], total: int) -> None:
    """Ungated activations, experts that are switched off, widths by layer, embeddings of more than 1e9 parameters."""
    assert parameters.total(described(tmp_path, config)) == pytest.approx(total, rel=0.002)


def test_an_encoder_has_memory(tmp_path: Path) -> None:
    bert = {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
            "num_hidden_layers": 12, "vocab_size": 30522, "max_position_embeddings": 512}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(bert))
    assert parameters.total(lookup.architecture(str(tmp_path / "config.json"))) == 109_482_240


@pytest.mark.parametrize(
    ("found", "weights"),
    [
        ({"quant_method": "mxfp4"}, "mxfp4-w16"), ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4-awq"), ({"quant_method": "gptq", "bits": 4}, "int4-gptq"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4-w16"), ({"quant_method": "unheard-of"}, "bf16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}}}, "int8-w8a8"),
    ],
)  # fmt: skip
def test_a_folder_is_served_as_it_is_quantised(ctx: Context, tmp_path: Path, found: Any, weights: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "new", "quantization_config": found}))
    asked = {"model": str(tmp_path / "config.json"), "gpus": 8, "gpu": "H100-SXM"}
    answer = execute("aisp_inference_vllm", asked, ctx).result
    assert f", {weights}, " in answer["answer"]["headline"]
    assert answer["answer"]["command"].startswith(f"vllm serve {tmp_path} --")
    assert "--quantization" not in answer["answer"]["command"]
    said = " ".join(answer["assumptions"])
    assert "model_type 'new'" in said
    assert str(found["quant_method"]) in said or str(found.get("quant_algo")) in said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"), ("[]", "not a JSON object"), ("{}", "num_hidden_layers"),
        (json.dumps({"model_type": "mamba", "num_hidden_layers": 4, "hidden_size": 64}), "no attention"),
        (json.dumps({**LLAMA, "is_encoder_decoder": True}), "encoder"),
        (json.dumps({**LLAMA, "num_hidden_layers": -1}), "layers"),
        (json.dumps({**LLAMA, "num_attention_heads": 0}), "heads"),
        (json.dumps({**LLAMA, "num_attention_heads": 63}), "63"),
        (json.dumps({**LLAMA, "hidden_size": "many"}), "hidden"),
        (json.dumps({k: v for k, v in LLAMA.items() if k != "hidden_size"}), "hidden_size"),
    ],
)  # fmt: skip
def test_a_broken_configuration_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=reason):
        lookup.architecture(str(tmp_path / "config.json"))
