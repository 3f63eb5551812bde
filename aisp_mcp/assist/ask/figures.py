"""Questions about numbers that a planner computes: does a model fit, how fast is it, how large is its cache, and what
does training it take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from aisp_mcp.assist.ask.records import Passage
from aisp_mcp.assist.guide.suggest import GPU_NAME
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, to_data

_MODEL = re.compile(r"\b(?:([a-z][\w.]*)[ -])?((?:[\w.]+-)*?[\w.]*?\d+(?:\.\d+)?b)\b", re.IGNORECASE)
# A model of a size is planned as a listed one of that size.
OF_SIZE = {
    "7b": "llama-2-7b", "8b": "llama-3.1-8b", "13b": "llama-2-13b", "32b": "qwen3-32b", "70b": "llama-3.1-70b",
    "72b": "qwen2.5-72b", "405b": "llama-3.1-405b",
}  # fmt: skip
TOOLS = ("aisp_fit", "aisp_inference_kv_cache", "aisp_distributed_plan")
# Training is planned on this GPU where none is named.
TRAINED_ON = "H200-SXM"
_COUNTS = {"a": 1, "one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "sixteen": 16}
_ASKS = re.compile(
    r"\b(fits?|can (i|we)|run|serve|host|enough|tokens?|tok/s|tps|throughput|how (fast|many|much)|vram|memory)\b",
    re.IGNORECASE,
)
_CACHE = re.compile(r"\bkv[ -]?cache\b", re.IGNORECASE)
_TRAINS = re.compile(r"\b(pre-?)?train(ing|ed)?\b|\bfine-?\s?tun\w+", re.IGNORECASE)
_TOKENS = re.compile(r"\b(\d[\d,.]*)\s*(k?)[ -]*(tokens|context)\b|\bcontext (?:of )?(\d[\d,.]*)(k?)\b", re.IGNORECASE)


def computed(question: str, ctx: Context) -> Passage | None:
    """The planner's sentence; None if the question names no model, or nothing that a planner computes of it."""
    if not _ASKS.search(question) and not _CACHE.search(question):
        return None
    gpu = GPU_NAME.search(question)
    for model in _models(question):
        if _CACHE.search(question) and (tokens := _tokens(question)):
            tool, args = TOOLS[1], {"model": model, "tokens": tokens}
        elif gpu is not None or _TRAINS.search(question):
            tool = TOOLS[2] if _TRAINS.search(question) else TOOLS[0]
            named = {"gpu": gpu[0], "gpus": _gpus(question, gpu)} if gpu else {"gpu": TRAINED_ON, "gpus": 1}
            args = {"model": model, **named}
        else:
            return None
        answer = to_data(execute(tool, args, ctx))
        if answer["status"] == "ok" or answer["error"]["code"] == "DOES_NOT_FIT":
            text = answer["result"]["answer"]["headline"] if answer["status"] == "ok" else answer["error"]["message"]
            taken = re.search(r"\d+(\.\d+)?b\b", question, re.IGNORECASE)
            if taken and model == OF_SIZE.get(taken[0].lower()) and model not in question.lower():
                text = f"A model of {taken[0].upper()} is planned as {model}. {text}"
            stated = ", ".join(f"{name}={value}" for name, value in args.items())
            return Passage(number=1, kind="tool", source=tool, title=f"{tool} {stated}", text=text)
    return None


def _models(question: str) -> Iterator[str]:
    """Names that the question may mean, the longest first; at last, a listed model of its size."""
    for match in _MODEL.finditer(question):
        family, name = match[1], match[2]
        if family:
            yield f"{family}-{name}"
        yield name
        if model := OF_SIZE.get(re.split(r"[- ]", name)[-1].lower()):
            yield model


def _gpus(question: str, gpu: re.Match[str]) -> int:
    """The number before the GPU's name; 1 without one."""
    before = re.search(r"(\d+|[a-z]+)\s*(?:x|×)?\s*(?:nvidia\s*)?$", question[: gpu.start()], re.IGNORECASE)
    word = before[1].lower() if before else ""
    return max(1, int(word)) if word.isdigit() else _COUNTS.get(word, 1)


def _tokens(question: str) -> int | None:
    found = _TOKENS.search(question)
    if found is None:
        return None
    number, thousands = (found[1], found[2]) if found[1] else (found[4], found[5])
    return round(float(number.replace(",", "")) * (1024 if thousands else 1))
