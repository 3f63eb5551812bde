"""A Hugging Face `config.json` as an architecture. Unknown model types are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError

_LARGEST = 4_000_000  # bytes: configurations have a few kilobytes
# Types with the layer of Llama: RMS norms, rotary keys, gated MLP. Additions of a family are derived below.
_GATED = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "gemma", "gemma2", "gemma3_text",
    "deepseek_v2", "deepseek_v3", "olmo2", "gpt_oss", "granite", "cohere", "smollm3", "ministral", "glm4",
    "kimi_k2", "seed_oss",
}  # fmt: skip
_PLAIN = {"gpt2", "gpt_neox", "opt", "starcoder2"}
_ENCODERS = {"bert", "roberta", "xlm-roberta", "vit", "siglip_vision_model", "clip_vision_model", "dinov2"}


def read(path: Path) -> dict[str, Any]:
    """Fields of an Architecture. Raises UsageError BAD_CONFIG."""
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _LARGEST:
            raise UsageError("BAD_CONFIG", f"{file.name} is larger than any model configuration.")
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "BAD_CONFIG", f"{file.name} cannot be read: {str(error)[:150]}.", "Give config.json."
        ) from None
    if not isinstance(config, dict):
        raise UsageError("BAD_CONFIG", f"{file.name} is not a JSON object.", "Give a model's config.json.")
    inner = config.get("text_config")
    return fields(inner if isinstance(inner, dict) else config, file.parent.name or "model")


def fields(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Fields of an Architecture from a parsed configuration. Raises UsageError BAD_CONFIG."""
    kind = str(config.get("model_type", ""))
    if kind not in _GATED | _PLAIN | _ENCODERS:
        raise UsageError(
            "BAD_CONFIG",
            f"model_type '{kind[:60]}' is not a type whose layers are known here.",
            f"Known: {', '.join(sorted(_GATED | _PLAIN | _ENCODERS))}. Or describe the model with architecture.",
        )
    layers, hidden = _need(config, "num_hidden_layers", "n_layer"), _need(config, "hidden_size", "n_embd")
    values = {
        "name": name,
        "source": "the caller's config.json",
        "layers": layers,
        "hidden": hidden,
        "vocab": config.get("vocab_size") or 1,
        "tied": config.get("tie_word_embeddings", kind in ("gpt2", "opt", "gemma", "gemma2", "gemma3_text")),
        "norms": _norms(kind),
        "context": config.get("max_position_embeddings") or config.get("n_positions"),
        "attention": _attention(config, kind, layers, hidden),
        "mlp": _mlp(config, kind, hidden),
    }
    if kind in _ENCODERS:  # no output head: the embedding counts once
        values["tied"] = True
    return values


def _need(config: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise UsageError("BAD_CONFIG", f"The configuration has no {names[0]}.", "Give the model's whole config.json.")


def _norms(kind: str) -> int:
    """Norm vectors of width `hidden` per layer: a layer norm has weight and bias."""
    return 4 if kind in _PLAIN | _ENCODERS | {"gemma2", "gemma3_text", "glm4"} else 1 if kind == "cohere" else 2


def _attention(config: Mapping[str, Any], kind: str, layers: int, hidden: int) -> dict[str, Any]:
    heads = _need(config, "num_attention_heads", "n_head")
    biased = kind in _PLAIN | _ENCODERS
    plain = isinstance(heads, int) and isinstance(hidden, int) and heads > 0
    width = config.get("head_dim") or (hidden // heads if plain else 0)
    if plain and not config.get("head_dim") and width * heads != hidden:
        raise UsageError("BAD_CONFIG", f"{heads} heads do not divide hidden size {hidden}, and head_dim is not given.")
    values = {
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": width,
        "layers": layers,
        "bias": bool(config.get("attention_bias", biased or kind in ("qwen2", "qwen2_moe"))),
        "output_bias": bool(config.get("attention_bias", biased)) and kind not in ("qwen2", "qwen2_moe"),
        "sinks": kind == "gpt_oss",
        "qk_norm": kind in ("qwen3", "qwen3_moe", "gemma3_text"),
        "window": _window(config, kind, layers),
    }
    if config.get("kv_lora_rank"):
        values |= {"head_dim": config["qk_nope_head_dim"] + config["qk_rope_head_dim"], "kv_heads": heads}
        values["latent"] = {
            "kv_rank": config["kv_lora_rank"], "rope_dim": config["qk_rope_head_dim"],
            "nope_dim": config["qk_nope_head_dim"], "v_dim": config["v_head_dim"], "q_rank": config.get("q_lora_rank"),
        }  # fmt: skip
    return values


def _window(config: Mapping[str, Any], kind: str, layers: int) -> dict[str, int] | None:
    tokens = config.get("sliding_window")
    if not tokens or config.get("use_sliding_window") is False:
        return None
    types = config.get("layer_types")
    if isinstance(types, list):
        count = sum(item == "sliding_attention" for item in types)
    else:
        period = config.get("sliding_window_pattern") or {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6}.get(kind, 0)
        count = layers - layers // period if period else layers
    return {"tokens": tokens, "layers": count} if count else None


def _four_times(hidden: Any) -> Any:
    return 4 * hidden if isinstance(hidden, int) else hidden


def _mlp(config: Mapping[str, Any], kind: str, hidden: int) -> dict[str, Any]:
    width = config.get("intermediate_size") or config.get("n_inner") or config.get("ffn_dim") or _four_times(hidden)
    gated = kind in _GATED
    values: dict[str, Any] = {"width": width, "gated": gated, "bias": bool(config.get("mlp_bias", not gated))}
    count = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts")
    if count:
        shared = config.get("n_shared_experts") or 0
        if config.get("shared_expert_intermediate_size"):
            shared = config["shared_expert_intermediate_size"] // config["moe_intermediate_size"]
        values["experts"] = {
            "count": count, "active": _need(config, "num_experts_per_tok"), "shared": shared,
            "ffn": config.get("moe_intermediate_size") or width, "bias": kind == "gpt_oss",
            "dense_layers": config.get("first_k_dense_replace") or 0,
            "router_bias": int(kind in ("deepseek_v3", "kimi_k2")),
        }  # fmt: skip
    return values
