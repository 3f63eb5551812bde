"""Count the bytes that a layer of transformers moves and stores where operators run one by one, without a GPU.

    python validation/count_operators.py

Models in 16 bits, in fp32 with autocast, and in fp32 throughout: bytes per token for each element of the residual
stream (h), of the MLP (w) and of queries and keys (qk), forward and backward, and stored for the backward pass.
Products, attention, embedding and loss are left out; operands that are broadcast count once. The planner's table is
aisp_mcp/plan/training/unfused.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

LEFT_OUT = ("mm", "scaled_dot", "flash", "embedding", "softmax", "nll", "cross", "empty")
VIEWS = {"view", "t", "transpose", "expand", "slice", "unsqueeze", "select", "permute", "detach", "alias",
         "_unsafe_view", "split", "unbind", "squeeze", "as_strided", "reshape"}  # fmt: skip
VOCABULARY, TOKENS, FEW, MORE = 64, 256, 2, 4


class Shape(NamedTuple):
    """Sizes of a layer. heads: of queries, four for each of keys."""

    hidden: int = 256
    width: int = 512
    heads: int = 8
    head: int = 32


class Counting(TorchDispatchMode):
    """Adds up the bytes of operands and results of each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.moved, self.phase = Counter[str](), "forward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), func._schema.name.partition("::")[2]
        if name not in VIEWS and not any(word in name for word in LEFT_OUT):
            self.moved[self.phase] += size(list(args)) + (size(args[0]) if name.endswith("_") else size(result))
        return result


def size(value: Any) -> int:
    """Bytes of all tensors inside; a dimension without a stride counts once."""
    if isinstance(value, torch.Tensor):
        pairs = zip(value.shape, value.stride(), strict=True)
        return value.element_size() * int(torch.tensor([n if step else 1 for n, step in pairs]).prod())
    return sum(map(size, value)) if isinstance(value, list | tuple) else 0


def model(family: str, shape: Shape, layers: int) -> Any:
    """A small model of that family."""
    if family == "opt":
        config = transformers.OPTConfig(
            hidden_size=shape.hidden, word_embed_proj_dim=shape.hidden, ffn_dim=shape.width, dropout=0.0,
            num_hidden_layers=layers, num_attention_heads=8, vocab_size=VOCABULARY, use_cache=False,
        )  # fmt: skip
    else:
        kind = transformers.Qwen3Config if family == "qwen3" else transformers.LlamaConfig
        config = kind(
            hidden_size=shape.hidden, intermediate_size=shape.width, num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads // 4, head_dim=shape.head, num_hidden_layers=layers,
            vocab_size=VOCABULARY, tie_word_embeddings=True, use_cache=False,
        )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).train()


def counted(family: str, shape: Shape, layers: int, tokens: int, precision: str) -> Counter[str]:
    """Bytes of one step by pass, and those stored for the backward pass."""
    made = model(family, shape, layers).to(torch.bfloat16 if precision == "16 bits" else torch.float32)
    weights = {weight.untyped_storage().data_ptr() for weight in made.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    ids, counting = torch.randint(VOCABULARY, (1, tokens)), Counting()
    with counting, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else nullcontext():
            loss = made(input_ids=ids, labels=ids).loss
        counting.phase = "backward"
        loss.backward()
    return Counter({**counting.moved, "stored": sum(storage.nbytes() for storage in kept.values())})


def per_token(family: str, shape: Shape, precision: str) -> dict[str, float]:
    """Bytes per token and layer: what more tokens and more layers add, so that weights do not count."""
    added = [
        {name: counted(family, shape, layers, tokens, precision)[name] for name in ("forward", "backward", "stored")}
        for layers in (FEW, MORE)
        for tokens in (TOKENS, 2 * TOKENS)
    ]
    few, few_long, more, more_long = added
    names = ("forward", "backward", "stored")
    return {name: (more_long[name] - more[name] - few_long[name] + few[name]) / TOKENS / (MORE - FEW) for name in names}


def main() -> None:
    """Print the bytes per element of each family and precision."""
    base = Shape()
    for family, precision in itertools.product(("llama", "qwen3", "opt"), ("16 bits", "autocast", "fp32")):
        start = per_token(family, base, precision)
        wider = {"h": (base._replace(hidden=512), 256), "w": (base._replace(width=1024), 512)}
        if family != "opt":
            wider["qk"] = base._replace(heads=16), 10 * base.head
        print(f"{family}, {precision}")
        for letter, (shape, elements) in wider.items():
            found = per_token(family, shape, precision)
            each = ", ".join(f"{name} {(found[name] - start[name]) / elements:.1f}" for name in start)
            print(f"  per {letter}: {each}", flush=True)


if __name__ == "__main__":
    main()
