"""The checkpoint of a model: the repository or folder that a command names, and the format of its weights."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.datasheets.load import normal

_LARGEST = 4_000_000  # bytes: configurations have a few kilobytes
SUFFIX = re.compile(r"-(instruct|chat|hf|it|base)(?=-|$)")
_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "awq": "int4-awq",
    "gptq": "int4-gptq",
    "auto-round": "int4-gptq",
}

# Words at the end of a repository's name that say how its weights are quantised, and those that say more about it.
_QUANTISED = {
    "fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4", "awq": "int4-awq", "gptq": "int4-gptq",
    "int4": "int4-gptq", "w4a16": "int4-gptq", "quantized.w4a16": "int4-gptq", "int8": "int8-w8a8",
    "w8a8": "int8-w8a8", "quantized.w8a8": "int8-w8a8",
}  # fmt: skip
_MORE = {"dynamic", "static", "block", "pertensor", "g128", "4bit", "marlin", "v2"}
_DATED = re.compile(r"-(\d{4}|thinking|reasoning|exp|preview)$", re.IGNORECASE)


def quantised(name: str) -> tuple[str, str | None]:
    """A repository's name without the words of quantisation at its end, and its format: Qwen3-32B-FP8 is in fp8."""
    words, found = re.split(r"[-:]", name), set()
    while len(words) > 1 and (word := words[-1].lower()) in _QUANTISED.keys() | _MORE:
        found |= {_QUANTISED[word]} if word in _QUANTISED else set()
        words.pop()
    if not found:
        return name, None
    return name[: len("-".join(words))], "int4-awq" if "int4-awq" in found else found.pop()


def undated(name: str) -> str:
    """The name without a date of release and words such as -thinking at its end."""
    while (shorter := _DATED.sub("", name)) != name:
        name = shorter
    return name


def parsed(file: Path) -> dict[str, Any]:
    """The JSON object in a file of a model's folder. Raises UsageError BAD_CONFIG."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a device may have no end
            raise UsageError("BAD_CONFIG", f"{file.name} is not a regular file.", "Give config.json.")
        with file.open("rb") as opened:
            text = opened.read(_LARGEST + 1)  # the system makes up some files, and gives their size as 0
        if len(text) > _LARGEST:
            raise UsageError("BAD_CONFIG", f"{file.name} is larger than any model configuration.")
        config = json.loads(text.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "BAD_CONFIG", f"{file.name} cannot be read: {str(error)[:150]}.", "Give config.json."
        ) from None
    if not isinstance(config, dict):
        raise UsageError("BAD_CONFIG", f"{file.name} is not a JSON object.", "Give a model's config.json.")
    return config


def tail(name: str) -> str:
    """A name without its organisation and such words as -instruct, lower case."""
    return SUFFIX.sub("", normal(name).replace(" ", "-").rpartition("/")[2])


def repository(asked: str, hub: str) -> str:
    """The repository that a command names: as asked with its organisation, else that of a listed one.

    hub: the listed repository. Words of the asked name keep its spelling: llama-3.1-8b-instruct becomes
    meta-llama/Llama-3.1-8B-Instruct.
    """
    if "/" in asked:
        return asked
    owner, _, listed = hub.rpartition("/")
    words = asked.strip().replace(" ", "-").replace("_", "-")
    if not SUFFIX.search(words.lower()):
        return hub
    spelled = {word.lower(): word for word in listed.split("-")} | {"instruct": "Instruct"}
    return f"{owner}/{'-'.join(spelled.get(word.lower(), word) for word in words.split('-'))}"


def of_folder(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Checkpoint and weight format of a folder with a config.json, and what is said about them."""
    inner = config.get("text_config")
    found = config.get("quantization_config") or (inner.get("quantization_config") if isinstance(inner, dict) else None)
    found = found or _beside(file)
    said = [f"The command serves {file.resolve().parent}: config.json, weights and tokenizer must be in that folder."]
    if not isinstance(found, dict):
        return {"checkpoint": str(file.resolve().parent), "said": said}
    weights = _format(found)
    method = found.get("quant_method") or found.get("quant_algo")
    if weights is None:
        said.append(
            f"quantization_config '{str(method)[:40]}' is of a format that is not listed here: planned without it."
        )
    else:
        said.append(f"The checkpoint is quantised ({method}): planned in {weights}, all layers alike.")
    return {"checkpoint": str(file.resolve().parent), "weights": weights, "said": said}


def _beside(file: Path) -> Any:
    """The quantisation that ModelOpt writes to a file of its own."""
    try:
        return parsed(file.parent / "hf_quant_config.json").get("quantization")
    except UsageError:
        return None


def _format(found: Mapping[str, Any]) -> str | None:
    """The name of the weight format; None for one that is not listed."""
    algorithm = str(found.get("moe_quant_algo") or found.get("quant_algo") or "").upper()
    layers = found.get("quantized_layers")
    if algorithm == "MIXED_PRECISION" and isinstance(layers, dict):
        kinds = {str(layer.get("quant_algo", "")).upper() for layer in layers.values()}
        algorithm = next((kind for kind in ("NVFP4", "W4A16_NVFP4", "MXFP4", "FP8") if kind in kinds), "")
    for word, name in (("NVFP4", "nvfp4"), ("MXFP4", "mxfp4"), ("FP8", "fp8")):
        if word in algorithm:
            return name
    groups = found.get("config_groups")
    if isinstance(groups, dict) and groups:
        return _group(next(iter(groups.values())), str(found.get("format", "")))
    method = _METHODS.get(str(found.get("quant_method", "")).lower())
    return None if str(method).startswith("int4") and found.get("bits", found.get("w_bit", 4)) != 4 else method


def _group(group: Mapping[str, Any], kind: str) -> str | None:
    """compressed-tensors: bits and type of the weights, and whether activations are quantised too."""
    weights = group.get("weights") or {}
    bits, float_, activations = weights.get("num_bits"), weights.get("type") == "float", group.get("input_activations")
    if "mxfp4" in kind or "mxfp4" in str(group.get("format", "")):
        return "mxfp4"
    if bits == 4:
        return "nvfp4" if float_ else "int4-gptq"
    if bits == 8:
        return "fp8" if float_ else "int8-w8a8" if activations else None
    return None
