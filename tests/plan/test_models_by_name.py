"""Names of models: aliases, Hub repositories, a config.json by path. Totals are those of published checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import kv, lookup, parameters
from aisp_mcp.plan.data import tables


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("Llama-3.3-70B", "llama-3.1-70b"), ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("DeepSeek-R1", "deepseek-v3"), ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"), ("llama-2-70b-chat-hf", "llama-2-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"), ("llama-3.1-8b", "llama-3.1-8b"),
    ],
)  # fmt: skip
def test_other_names_of_a_listed_model(name: str, listed: str) -> None:
    assert lookup.architecture(name).name == listed


def test_every_alias_leads_to_a_listed_model_and_shadows_none() -> None:
    assert set(tables.aliases().values()) <= set(tables.models())
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
QWEN = {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 48,
        "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total"),
    [(LLAMA, 70_553_706_496), (KIMI, 1_026_408_232_448), (QWEN, 30_532_122_624)],
)  # fmt: skip
def test_a_configuration_by_path_has_the_published_total(tmp_path: Path, config: dict[str, Any], total: int) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    arch = lookup.architecture(str(file))
    assert parameters.total(arch) == total
    assert lookup.architecture(str(tmp_path)).hidden == config["hidden_size"]
    assert kv.cache(arch, 1024, 1, "bf16").total_bytes > 0


def test_an_encoder_has_memory(tmp_path: Path) -> None:
    bert = {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
            "num_hidden_layers": 12, "vocab_size": 30522, "max_position_embeddings": 512}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(bert))
    arch = lookup.architecture(str(tmp_path / "config.json"))
    assert parameters.total(arch) == pytest.approx(109.5e6, rel=0.01)  # positions and pooler are not counted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"), ("[]", "not a JSON object"), ("{}", "model_type ''"),
        (json.dumps({**LLAMA, "model_type": "mamba"}), "mamba"),
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
