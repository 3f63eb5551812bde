"""A Hugging Face `config.json` as an architecture: any decoder, from the fields it has. `assumed` says the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import checkpoint

Config = Mapping[str, Any]
# What a class of transformers does without saying so in its configuration.
_LAYER_NORMS = {
    "gpt2", "gpt_neox", "opt", "starcoder2", "phi", "phimoe", "stablelm", "gptj", "codegen", "falcon", "bloom",
}  # fmt: skip
_PLAIN = _LAYER_NORMS - {"stablelm", "phimoe"}
_ENCODERS = {"bert", "roberta", "xlm-roberta", "vit", "siglip_vision_model", "clip_vision_model", "dinov2"}
_UNGATED = {
    "arcee", "apertus", "mpt", "nemotron", "persimmon", "gpt_neo", "gpt_neox_japanese", "biogpt", "xglm", "jais2",
}  # fmt: skip
_RECURRENT_ONLY = {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"}
_BIASED = {"gpt2", "gpt_neox", "opt", "phi", "bloom"} | _ENCODERS
_BIASED_INPUTS = {"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "glm4", "glm", "glm4_moe"}
_ONE_NORM = {"cohere", "cohere2", "phi", "gptj", "codegen"}
_FOUR_NORMS = {"gemma2", "gemma3_text", "gemma4_text", "glm4"}
_TIED = {
    "gpt2", "opt", "gemma", "gemma2", "gemma3_text", "gemma4_text", "cohere", "cohere2", "smollm3", "starcoder2",
    "falcon", "bloom", "mpt", "ernie4_5", "ernie4_5_moe", "lfm2", "helium2",
}  # fmt: skip
_HEAD_NORMS = {
    "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text",
    "gemma3_text", "gemma4_text", "exaone4", "apertus", "lfm2", "minimax_m3",
}  # fmt: skip
_WIDE_NORMS = {"olmo2", "olmo3", "olmoe", "minimax_m2"}
_KNOWN = (
    _LAYER_NORMS | _ENCODERS | _BIASED_INPUTS | _ONE_NORM | _FOUR_NORMS | _TIED | _HEAD_NORMS | _WIDE_NORMS
    | {"llama", "mistral", "mixtral", "phi3", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "gpt_oss",
       "granite", "granitemoe", "kimi_k2", "kimi_linear", "seed_oss", "ministral", "olmo", "arcee", "nemotron_h",
       "jamba", "llama4_text", "glm_moe_dsa", "mimo", "mimo_v2_flash"}
)  # fmt: skip
_ROUTER_BIAS = {"deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear", "glm4_moe", "glm_moe_dsa", "nemotron_h",
                "ernie4_5_moe"}  # fmt: skip
FULL, WINDOW, RECURRENT, NONE = "full", "window", "recurrent", "none"
_TYPES = {
    "full_attention": FULL, "attention": FULL, "sliding_attention": WINDOW, "chunked_attention": WINDOW,
    "linear_attention": RECURRENT, "mamba": RECURRENT, "conv": RECURRENT, "recurrent": RECURRENT, "hybrid": FULL,
    "moe": NONE, "mlp": NONE,
}  # fmt: skip
_PATTERN = {"M": RECURRENT, "*": FULL, "-": NONE, "E": NONE}


def read(path: Path) -> dict[str, Any]:
    """Fields of an Architecture. Raises UsageError BAD_CONFIG."""
    file = path / "config.json" if path.is_dir() else path
    config = checkpoint.parsed(file)
    values = fields(config, file.resolve().parent.name or "model")
    values |= checkpoint.of_folder(config, file)
    return values | {"assumed": [*values["assumed"], *values.pop("said")]}


def fields(config: Config, name: str) -> dict[str, Any]:
    """Fields of an Architecture from a parsed configuration. Raises UsageError BAD_CONFIG."""
    try:
        return _fields(config, name)
    except (TypeError, ValueError, ArithmeticError, KeyError, AttributeError) as error:
        text = f"The configuration has a field of the wrong type or size: {str(error)[:120]}."
        raise UsageError(
            "BAD_CONFIG", text, "Give the model's own config.json, or describe it with architecture."
        ) from None


def _fields(whole: Config, name: str) -> dict[str, Any]:
    inner = whole.get("text_config") or whole.get("llm_config") or whole.get("language_config")
    text = dict(inner) if isinstance(inner, dict) else dict(whole)
    if whole.get("is_encoder_decoder"):
        raise UsageError("BAD_CONFIG", "The configuration is of an encoder and a decoder.", "Plans are of decoders.")
    kind, said = str(text.get("model_type") or whole.get("model_type") or ""), []
    if kind in _RECURRENT_ONLY:
        raise UsageError("BAD_CONFIG", f"A model of type '{kind}' has no attention.", "Plans need a decoder with some.")
    if kind not in _KNOWN:
        said.append(f"Layers of model_type '{kind[:60]}' are read from its fields, otherwise as Llama's.")
    named = text.get("layers_block_type")
    layers = (
        len(named)
        if isinstance(named, list) and named
        else _size(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    )
    hidden = _size(text, "hidden_size", "n_embd", "d_model", "dim")
    kinds = _kinds(text, kind, layers)
    tied = text.get("tie_word_embeddings", whole.get("tie_word_embeddings", kind in _TIED))
    values: dict[str, Any] = {
        "name": name,
        "source": "the caller's config.json",
        "layers": layers,
        "hidden": hidden,
        "vocab": text.get("vocab_size") or 1,
        "tied": bool(tied) or kind in _ENCODERS,  # an encoder has no output head: the embedding counts once
        "context": text.get("max_position_embeddings") or text.get("n_positions") or text.get("max_sequence_length"),
        "attention": _attention(text, kind, kinds, hidden),
        "mlp": _mlp(text, kind, kinds, hidden, said),
        "recurrent": _recurrent(text, kinds, hidden, said),
        "parts": _positions(text, kind, hidden) + _vision(whole, hidden, said),
        "head_bias": kind in ("phi", "gptj", "codegen"),
        **_norms(text, kind),
    }
    if text.get("index_topk") or text.get("sparse_attention_config"):
        said.append("Sparse attention: the cache holds every token; a step is timed as if it read all of it.")
    if text.get("num_nextn_predict_layers") or text.get("mtp_num_hidden_layers") or text.get("use_mtp"):
        said.append("Layers that predict several tokens are not counted.")
    return values | {"assumed": said}


def _size(config: Config, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError("BAD_CONFIG", f"{name} is {str(value)[:40]!r}, not a whole number.")
            return value
    raise UsageError("BAD_CONFIG", f"The configuration has no {names[0]}.", "Give the model's whole config.json.")


def _norms(config: Config, kind: str) -> dict[str, int]:
    """Norm vectors of width `hidden` per layer and at the end: a layer norm has weight and bias."""
    if kind == "olmo":
        return {"norms": 0, "final_norm": 0}
    each = 2 if kind in _LAYER_NORMS | _ENCODERS else 1
    count = 4 if kind in _FOUR_NORMS else 1 if kind in _ONE_NORM or _is_pattern(config) else 2
    if kind == "falcon" and not config.get("new_decoder_architecture"):
        count = 1
    if kind == "gemma4_text" and config.get("enable_moe_block"):
        count = 7
    return {"norms": count * each, "final_norm": each}


def _is_pattern(config: Config) -> bool:
    """Each layer is one block: attention, recurrent or MLP, with one norm."""
    return bool(config.get("hybrid_override_pattern")) or "moe" in (config.get("layers_block_type") or [])


# --- the kind of each layer


def _kinds(config: Config, kind: str, layers: int) -> list[str]:
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return [_PATTERN[letter] for letter in pattern if letter in _PATTERN][:layers]
    listed = config.get("layer_types") or config.get("layers_block_type") or config.get("block_types")
    if isinstance(listed, list) and listed:
        return [_TYPES.get(str(item), FULL) for item in (listed * layers)[:layers]]
    linear = config.get("linear_attn_config")
    if isinstance(linear, dict) and linear.get("kda_layers"):
        return [RECURRENT if at + 1 in linear["kda_layers"] else FULL for at in range(layers)]
    for name, other in (("hybrid_layer_pattern", WINDOW), ("attn_type_list", None)):
        marks = config.get(name)
        if isinstance(marks, list):
            return [(FULL if mark else RECURRENT) if other is None else (other if mark else FULL) for mark in marks]
    blocks = config.get("block_configs")
    if isinstance(blocks, list):
        return [NONE if block["attention"].get("no_op") else FULL for block in blocks]
    period = config.get("full_attention_interval") or config.get("attn_layer_period")
    if period:
        at = config.get("attn_layer_offset", period - 1)
        return [FULL if layer % period == at else RECURRENT for layer in range(layers)]
    if config.get("attn_layer_indices"):
        return [FULL if at in config["attn_layer_indices"] else RECURRENT for at in range(layers)]
    return _windowed(config, kind, layers)


def _windowed(config: Config, kind: str, layers: int) -> list[str]:
    if not _window_tokens(config) or config.get("use_sliding_window") is False:
        return [FULL] * layers
    period = config.get("sliding_window_pattern") or {
        "gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "llama4_text": 4, "olmo3": 4,
    }.get(kind, 0)  # fmt: skip
    return [FULL if period and at % period == period - 1 else WINDOW for at in range(layers)]


def _window_tokens(config: Config) -> Any:
    # DeepSeek-V4 attends to a window beside its compressed entries; those make its cache.
    return None if config.get("compress_ratios") else config.get("sliding_window") or config.get("attention_chunk_size")


# --- attention


def _attention(config: Config, kind: str, kinds: Sequence[str], hidden: int) -> dict[str, Any]:
    heads = _size(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    if heads < 1:
        raise UsageError("BAD_CONFIG", f"The configuration has {heads} attention heads.")
    width = config.get("head_dim") or config.get("attention_head_dim") or hidden // heads
    latent = config.get("kv_lora_rank")
    if width * heads != hidden and not (config.get("head_dim") or config.get("attention_head_dim") or latent):
        raise UsageError("BAD_CONFIG", f"{heads} heads do not divide hidden size {hidden}, and head_dim is not given.")
    kv_heads = _kv_heads(config, kind, heads)
    attending = sum(item in (FULL, WINDOW) for item in kinds)
    biased = bool(config.get("attention_bias", config.get("use_bias", kind in _BIASED)))
    values: dict[str, Any] = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": width,
        "layers": attending,
        "bias": biased or kind in _BIASED_INPUTS - {"glm4_moe"} or bool(config.get("use_qkv_bias")),
        "output_bias": bool(config.get("attention_out_bias", biased)) and kind not in _BIASED_INPUTS | {"mimo"},
        "sinks": kind == "gpt_oss",
        "qk_norm": kind in _HEAD_NORMS or config.get("qk_norm_type") == "per_head",
    }
    if WINDOW in kinds:
        values["window"] = {"tokens": _window_tokens(config), "layers": sum(item == WINDOW for item in kinds)}
    if latent:
        nope, rope, v = config["qk_nope_head_dim"], config.get("qk_rope_head_dim") or 0, config["v_head_dim"]
        rank = config.get("q_lora_rank")
        values |= {"head_dim": nope + rope, "kv_heads": heads}
        values["latent"] = {"kv_rank": latent, "rope_dim": rope, "nope_dim": nope, "v_dim": v, "q_rank": rank}
    return values | _unusual(config, kind, kinds, hidden, values)


def _kv_heads(config: Config, kind: str, heads: int) -> int:
    if kind == "falcon" and config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    blocks = config.get("block_configs")
    if isinstance(blocks, list):  # grouped queries that differ by layer
        groups = [heads // (block["attention"].get("n_heads_in_group") or heads) for block in blocks]
        used = [count for count, block in zip(groups, blocks, strict=True) if not block["attention"].get("no_op")]
        return max(1, round(sum(used) / max(1, len(used))))
    return int(config.get("num_key_value_heads") or config.get("num_kv_heads") or config.get("n_head_kv") or heads)


def _unusual(config: Config, kind: str, kinds: Sequence[str], hidden: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Blocks whose weights or cache do not follow from heads and widths."""
    heads, width, kv = values["heads"], values["head_dim"], values["kv_heads"]
    if config.get("o_lora_rank"):
        return _compressed(config, kinds, hidden, heads, width)
    if values.get("latent"):
        return _indexed(config, hidden, values)
    if kind in _WIDE_NORMS:
        return {"qk_norm": False, "parameters": hidden * 2 * width * (heads + kv) + width * (heads + kv)}
    if config.get("attn_output_gate") or kind == "qwen3_next":
        return {"parameters": hidden * width * (3 * heads + 2 * kv) + 2 * width}
    index = config.get("sparse_attention_config")
    if isinstance(index, dict):
        sparse = sum(map(bool, index.get("sparse_attention_freq") or [])) / max(1, len(kinds))
        own = (index.get("sparse_num_index_heads", 0) + 1) * hidden * index.get("sparse_index_dim", 0)
        plain = hidden * 2 * width * (heads + kv) + 2 * width * bool(values["qk_norm"])
        return {"parameters": plain + round(sparse * own)}
    if config.get("global_head_dim"):  # Gemma 4: the given numbers are those of its windows
        return _global(config, kinds, hidden, heads, width, kv)
    if config.get("swa_num_key_value_heads"):
        return _two_kinds(config, kinds, hidden, heads, width, kv)
    return {}


def _global(config: Config, kinds: Sequence[str], hidden: int, heads: int, width: int, kv: int) -> dict[str, Any]:
    windows, wide = sum(item == WINDOW for item in kinds), config["global_head_dim"]
    few = config.get("num_global_key_value_heads") or kv
    once = 1 if config.get("attention_k_eq_v") else 2
    local = hidden * 2 * width * (heads + kv) + 2 * width
    whole = hidden * wide * (2 * heads + once * few) + 2 * wide
    average = round((local * windows + whole * (len(kinds) - windows)) / len(kinds))
    window = {"tokens": _window_tokens(config), "layers": windows, "kv_heads": kv, "head_dim": width}
    return {"kv_heads": few, "head_dim": wide, "parameters": average, "window": window if windows else None}


def _two_kinds(config: Config, kinds: Sequence[str], hidden: int, heads: int, width: int, kv: int) -> dict[str, Any]:
    """Windows with other key-value heads, values narrower than keys."""
    windows, v = sum(item == WINDOW for item in kinds), config.get("v_head_dim") or width
    other = config["swa_num_key_value_heads"]
    sizes = [hidden * (heads * width + n * width + n * v + heads * v) for n in (other, kv)]
    sinks = heads * windows * bool(config.get("add_swa_attention_sink_bias"))
    average = round((sizes[0] * windows + sizes[1] * (len(kinds) - windows) + sinks) / len(kinds))
    narrow = (width + v) / 2
    window = {"tokens": _window_tokens(config), "layers": windows, "kv_heads": other, "head_dim": math.ceil(narrow)}
    return {"parameters": average, "cached": int(2 * kv * narrow), "window": window if windows else None}


def _indexed(config: Config, hidden: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Latent attention with an indexer that chooses tokens: its keys are cached too."""
    latent, heads = values["latent"], values["heads"]
    gate = hidden * heads * latent["v_dim"] if config.get("mla_use_output_gate") else 0
    if not config.get("index_topk") and not gate:
        return {}
    rank, wide = latent["q_rank"] or hidden, heads * values["head_dim"]
    query = hidden * rank + rank + rank * wide if latent["q_rank"] else hidden * wide
    down = hidden * (latent["kv_rank"] + latent["rope_dim"]) + latent["kv_rank"]
    up = latent["kv_rank"] * heads * (latent["nope_dim"] + latent["v_dim"])
    own, cached = 0, latent["kv_rank"] + latent["rope_dim"]
    if config.get("index_topk"):
        dim, count = config["index_head_dim"], config["index_n_heads"]
        types = config.get("indexer_types")
        share = sum(item == "full" for item in types) / len(types) if types else 1.0
        own = round(share * (rank * count * dim + hidden * (dim + count) + 2 * dim))
        cached += round(share * dim)
    return {"parameters": query + down + up + heads * latent["v_dim"] * hidden + own + gate, "cached": cached}


def _compressed(config: Config, kinds: Sequence[str], hidden: int, heads: int, width: int) -> dict[str, Any]:
    """DeepSeek-V4: one shared key-value vector; groups of tokens share an entry, four of them with an indexer."""
    rank, groups, low = config["q_lora_rank"], config["o_groups"], config["o_lora_rank"]
    plain = hidden * rank + rank + rank * heads * width + hidden * width + width + heads
    plain += heads * width * low + groups * low * hidden
    ratios = list(config.get("compress_ratios") or [])[: len(kinds)] or [0] * len(kinds)
    dim, count = config.get("index_head_dim") or 0, config.get("index_n_heads") or 0

    def compressor(ratio: int, size: int) -> int:
        return 2 * hidden * size + ratio * size + size

    extra = 0
    for ratio in ratios:
        overlapping = ratio == min((r for r in ratios if r), default=0)
        if ratio and overlapping:
            extra += compressor(ratio, 2 * width) - width + compressor(ratio, 2 * dim) - dim
            extra += rank * count * dim + hidden * count
        elif ratio:
            extra += compressor(ratio, width)
    entries = sum(1 / ratio for ratio in ratios if ratio) / len(ratios)
    streams = config.get("hc_mult") or 0
    mixing = 2 * (((2 + streams) * streams) * (streams * hidden + 1) + 3) if streams else 0
    return {
        "parameters": plain + round(extra / len(ratios)) + mixing,
        "cached": width,
        "stride": 1 / entries if 0 < entries <= 1 else 1.0,
    }


# --- MLP and experts


def _mlp(config: Config, kind: str, kinds: Sequence[str], hidden: int, said: list[str]) -> dict[str, Any]:
    gated = not (
        kind in _PLAIN | _ENCODERS | _UNGATED
        or (_first(config, "mlp_hidden_act", "hidden_act") in ("relu2", "xielu") and kind != "bitnet")
        or "n_embd" in config
    )
    count = _first(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    count = None if config.get("is_moe") is False else count
    width = _first(config, "intermediate_size_mlp" if count else "", "dense_intermediate_size", "intermediate_size",
                   "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim")  # fmt: skip
    if isinstance(width, list) and width:
        said.append("Layers differ in MLP width: planned with the mean.")
        width = round(sum(width) / len(width))
    values: dict[str, Any] = {"gated": gated, "layers": len(kinds)}
    values["bias"] = bool(config.get("mlp_bias", config.get("use_bias", kind in _BIASED | {"gptj", "codegen"})))
    blocks = config.get("block_configs")
    if isinstance(blocks, list):
        return values | _blocks(blocks, hidden, said)
    if _is_pattern(config):
        values["layers"] = max(1, sum(item == NONE for item in kinds))
    ffn = _first(config, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    if isinstance(ffn, list):
        ffn = ffn[0]
    if width is None:
        width = 4 * hidden if not count else ffn
        if not count and kind not in ("gpt2", "gptj", "bloom", "mpt"):
            said.append(f"MLP width {width}: four times the hidden size, as no field gives it.")
    if config.get("block_auto_adjust_ff_dim"):
        step = config.get("block_multiple_of") or 256
        width = -(-int(config.get("block_ffn_dim_multiplier", 1) * int(2 * width / 3)) // step) * step
    values["width"] = width
    if count:
        values["experts"] = _experts(config, kind, count, ffn, values["layers"])
    return values


def _first(config: Config, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name)), None)


def _experts(config: Config, kind: str, count: int, ffn: int, layers: int) -> dict[str, Any]:
    active = _first(
        config, "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk", "top_k"
    )
    if active is None:
        raise UsageError("BAD_CONFIG", "The configuration has experts, but no num_experts_per_tok.")
    shared = _first(config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts") or 0
    shared_ffn = _first(
        config, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
        "shared_intermediate_size",
    )  # fmt: skip
    if kind == "llama4_text":
        shared, shared_ffn = 1, ffn
    if config.get("enable_moe_block"):  # Gemma 4: a dense MLP beside the experts of each layer
        shared, shared_ffn = 1, config["intermediate_size"]
    return {
        "count": count,
        "active": active,
        "ffn": ffn,
        "hidden": _first(config, "moe_latent_size", "routed_expert_hidden_size"),
        "shared": shared or int(bool(shared_ffn)),
        "shared_ffn": shared_ffn // (1 if "n_shared_experts" not in config else shared or 1) if shared_ffn else None,
        "shared_gate": "shared_expert_intermediate_size" in config and not config.get("n_shared_experts"),
        "bias": kind == "gpt_oss",
        "dense_layers": _dense(config, layers),
        "router_bias": int(kind in _ROUTER_BIAS or config.get("use_routing_bias") is True or
                           config.get("use_moe_router_bias") is True or config.get("topk_method") == "noaux_tc"),
    }  # fmt: skip


def _dense(config: Config, layers: int) -> int:
    """Layers whose MLP is dense."""
    types, frequency = config.get("mlp_layer_types"), config.get("moe_layer_freq")
    if isinstance(types, list):
        return sum(item == "dense" for item in types)
    if isinstance(frequency, list):
        return sum(not item for item in frequency)
    if isinstance(config.get("moe_layers"), list) and config["moe_layers"]:
        return layers - len(config["moe_layers"])
    step = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1
    if config.get("expert_layer_period"):
        period, at = config["expert_layer_period"], config.get("expert_layer_offset", 0)
        return sum(layer % period != at for layer in range(layers))
    if config.get("moe_layer_start_index") is not None:
        last = config.get("moe_layer_end_index", layers - 1)
        return int(layers - (min(last if last >= 0 else layers - 1, layers - 1) - config["moe_layer_start_index"] + 1))
    only = set(config.get("mlp_only_layers") or [])
    first = config.get("first_k_dense_replace") or 0
    return sum(layer < first or layer in only or (layer + 1) % step != 0 for layer in range(layers))


def _blocks(blocks: Sequence[Config], hidden: int, said: list[str]) -> dict[str, Any]:
    """MLPs whose widths differ by layer: their mean."""
    widths = []
    for block in blocks:
        ffn = block["ffn"]
        if not ffn.get("no_op"):
            width = ffn.get("intermediate_size") or int(2 * ffn["ffn_mult"] * hidden / 3)
            widths.append(-(-width // 256) * 256)
    said.append("Layers differ in heads and MLP width: planned with the mean of each.")
    return {"width": round(sum(widths) / len(widths)), "layers": len(widths)}


# --- recurrent layers


def _recurrent(config: Config, kinds: Sequence[str], hidden: int, said: list[str]) -> dict[str, Any] | None:
    count = sum(item == RECURRENT for item in kinds)
    if not count:
        return None
    for reader in (_delta, _kimi, _mamba2, _mamba, _convolution):
        found = reader(config, hidden)
        if found is not None:
            weights, convolution, state = found
            return {"layers": count, "parameters": weights, "elements": convolution, "fp32_elements": state}
    heads = _size(config, "num_attention_heads", "n_head")
    width = config.get("head_dim") or hidden // heads
    said.append(f"{count} linear layers: weights as attention's, a state of head_dim squared for each head.")
    return {"layers": count, "elements": 0, "fp32_elements": heads * width * width}


Mixer = tuple[int, int, int]  # weights, elements of the convolution's window, elements of the fp32 state


def _delta(config: Config, hidden: int) -> Mixer | None:
    """Gated delta rule of Qwen3-Next and Qwen3.5."""
    if not config.get("linear_num_value_heads"):
        return None
    heads, wide = config["linear_num_value_heads"], config["linear_value_head_dim"]
    keys, values = config["linear_num_key_heads"] * config["linear_key_head_dim"], heads * wide
    mixed, kernel = 2 * keys + values, config.get("linear_conv_kernel_dim", 4)
    weights = hidden * (mixed + values + 2 * heads) + mixed * kernel + 2 * heads + wide + values * hidden
    return weights, mixed * (kernel - 1), heads * config["linear_key_head_dim"] * wide


def _kimi(config: Config, hidden: int) -> Mixer | None:
    """Kimi delta attention."""
    linear = config.get("linear_attn_config")
    if not isinstance(linear, dict) or "num_heads" not in linear:
        return None
    heads, dim, kernel = linear["num_heads"], linear["head_dim"], linear.get("short_conv_kernel_size", 4)
    width = heads * dim
    gate = hidden * width if linear.get("use_full_rank_gate") else hidden * dim + dim * width
    forget = hidden * dim + dim * width + width + heads
    weights = 4 * hidden * width + 3 * width * kernel + forget + gate + hidden * heads + dim
    return weights, 3 * width * (kernel - 1), heads * dim * dim


def _mamba2(config: Config, hidden: int) -> Mixer | None:
    heads, dim = _first(config, "mamba_num_heads", "mamba_n_heads"), _first(config, "mamba_head_dim", "mamba_d_head")
    state, groups = _first(config, "ssm_state_size", "mamba_d_state"), _first(config, "n_groups", "mamba_n_groups") or 1
    if not (heads and state) or config.get("mamba_dt_rank"):
        return None
    inner = heads * dim if isinstance(dim, int) else int(config.get("mamba_expand", 2) * hidden)
    kernel = _first(config, "conv_kernel", "mamba_d_conv") or 4
    mixed = inner + 2 * groups * state
    weights = hidden * (inner + mixed + heads) + mixed * (kernel + 1) + 3 * heads + inner + inner * hidden
    return weights, mixed * (kernel - 1), inner * state


def _mamba(config: Config, hidden: int) -> Mixer | None:
    rank, state = config.get("mamba_dt_rank"), config.get("mamba_d_state")
    if not (rank and state):
        return None
    inner, kernel = config.get("mamba_expand", 2) * hidden, config.get("mamba_d_conv", 4)
    rank = math.ceil(hidden / 16) if rank == "auto" else rank
    weights = 3 * hidden * inner + inner * (kernel + 1) + inner * (rank + 2 * state) + (rank + 1) * inner
    weights += inner * state + inner + rank + 2 * state
    return weights, inner * (kernel - 1), inner * state


def _convolution(config: Config, hidden: int) -> Mixer | None:
    kernel = config.get("conv_L_cache")
    return (4 * hidden * hidden + hidden * kernel, hidden * (kernel - 1), 0) if kernel else None


# --- beside the layers


def _positions(config: Config, kind: str, hidden: int) -> list[dict[str, Any]]:
    """Learned positions (OPT has two more than its context), and what an encoder has beside its layers."""
    length, types = (
        config.get("n_positions") or config.get("max_position_embeddings") or 0,
        config.get("type_vocab_size", 2),
    )
    count = {"gpt2": length, "opt": length + 2}.get(kind, 0)
    if kind in ("bert", "roberta", "xlm-roberta"):
        return [{"name": "positions, types, pooler", "parameters": hidden * (length + types + hidden + 1)}]
    if kind == "bloom":
        return [{"name": "norm of the embedding", "parameters": 2 * hidden}]
    if kind in _ENCODERS:
        return [
            {
                "name": "patches, positions, pooler",
                "parameters": _patches(config, hidden) + _pooler(config, kind, hidden),
            }
        ]
    if config.get("hidden_size_per_layer_input"):  # Gemma 3n and 4: every layer has its own small embedding
        small, layers = config["hidden_size_per_layer_input"], config["num_hidden_layers"]
        table = (config.get("vocab_size_per_layer_input") or config["vocab_size"]) * layers * small
        weights = layers * (3 * hidden * small + hidden) + small
        return [{"name": "embeddings of each layer", "parameters": table + weights}]
    return [{"name": "learned positions", "parameters": count * hidden}] if count else []


def _pooler(config: Config, kind: str, hidden: int) -> int:
    """The remaining weights of a vision encoder; its class token is the one row of the embedding."""
    if kind == "siglip_vision_model":  # attention to a learned query, and an MLP
        width = config.get("intermediate_size") or 4 * hidden
        return 4 * hidden * hidden + 7 * hidden + 2 * hidden * width + width
    layers = config.get("num_hidden_layers") or 0
    return int({"vit": hidden * (hidden + 2), "dinov2": 2 * hidden * (layers + 1)}.get(kind, 2 * hidden))


def _patches(config: Config, hidden: int) -> int:
    patch, image = config.get("patch_size") or 14, config.get("image_size") or 224
    channels = config.get("num_channels") or config.get("in_channels") or config.get("in_chans") or 3
    return int(
        hidden * (patch * patch * channels * (config.get("temporal_patch_size") or 1) + 1 + (image // patch) ** 2)
    )


def _vision(whole: Config, text_hidden: int, said: list[str]) -> list[dict[str, Any]]:
    """A vision tower: blocks of attention and a plain MLP, patches, and the projection to the decoder."""
    vision = whole.get("vision_config")
    if not isinstance(vision, dict):
        return []
    hidden = _first(vision, "hidden_size", "vt_hidden_size", "embed_dim")
    layers = _first(vision, "depth", "num_hidden_layers", "vt_num_hidden_layers", "num_layers")
    if not hidden or not layers:
        said.append("The vision tower is not counted: its configuration gives no width or depth.")
        return []
    width = _first(vision, "intermediate_size", "vt_intermediate_size") or 4 * hidden
    inner = vision.get("qkv_hidden_size") or hidden
    layer = 4 * hidden * inner + 2 * hidden * width + 9 * hidden + width
    merged = hidden * (vision.get("spatial_merge_size") or 1) ** 2
    out = vision.get("out_hidden_size") or text_hidden
    projections = (1 + len(vision.get("deepstack_visual_indexes") or [])) * (merged * merged + merged * out)
    said.append("The vision tower counts for memory, to within a few percent; images are not timed.")
    total = layers * layer + _patches(vision, hidden) + projections
    return [{"name": "vision tower", "parameters": int(total)}]
