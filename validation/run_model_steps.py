"""Train public models with random weights for a few steps: seconds per step and peak memory.

    python validation/run_model_steps.py [--rows 0-11] [--seconds 240]                          # on one GPU
    torchrun --nproc-per-node 2 validation/run_model_steps.py --sharded [--rows 0-3]            # FSDP2 on two

Prints one JSON row per configuration, for results/h200-model-steps.json; tests/plan puts the planner's answers beside
them. The models are those of transformers with its own loss; weights are fp32 with autocast to bf16 (FSDP2: its mixed
precision), or bf16 throughout; a step is the forward and backward pass of one microbatch, the clipping of the
gradient's norm, and fused AdamW. Tokens are random. seconds: median of the timed steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import torch.distributed as dist
import transformers

from aisp_mcp.plan import lookup

WARM_UP, TIMED = 3, 8
FAMILIES = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config, "smollm2": transformers.LlamaConfig}


class Row(NamedTuple):
    """One configuration. batch: sequences per GPU and step. precision: mixed or bf16, as of the planner."""

    model: str
    batch: int
    seq: int = 4096
    stack: str = "eager"
    recompute: str = "none"
    precision: str = "mixed"


ROWS = (
    Row("llama-3.2-1b", 2),
    Row("llama-3.2-1b", 8, 2048, recompute="full"),
    Row("qwen3-0.6b", 4),
    Row("qwen3-1.7b", 2),
    Row("qwen3-1.7b", 4, 2048, precision="bf16"),
    Row("qwen3-4b", 1),
    Row("qwen3-4b", 2, recompute="full"),
    Row("llama-3.1-8b", 1, recompute="full", precision="bf16"),
    Row("llama-3.2-1b", 2, stack="compiled"),
    Row("qwen3-0.6b", 4, stack="compiled"),
    Row("qwen3-1.7b", 2, stack="compiled"),
    Row("qwen3-4b", 1, stack="compiled"),
    Row("llama-3.2-1b", 1, 16384),
)
SHARDED = (
    Row("llama-3.2-1b", 2),
    Row("qwen3-4b", 1),
    Row("qwen3-4b", 2, recompute="full"),
    Row("llama-3.1-8b", 1, recompute="full"),
)


def built(row: Row, device: str) -> transformers.PreTrainedModel:
    """The model of this row on the device, in training mode."""
    arch = lookup.architecture(row.model)
    family = next(config for name, config in FAMILIES.items() if row.model.startswith(name))
    config = family(
        hidden_size=arch.hidden, num_hidden_layers=arch.layers, vocab_size=arch.vocab, head_dim=arch.attention.head_dim,
        num_attention_heads=arch.attention.heads, num_key_value_heads=arch.attention.kv_heads,
        intermediate_size=arch.mlp.width, tie_word_embeddings=arch.tied, max_position_embeddings=row.seq,
        use_cache=False,
    )  # fmt: skip
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to(torch.bfloat16 if row.precision == "bf16" else torch.float32)
    parameters = sum(weight.numel() for weight in model.parameters())
    if arch.parameters and parameters != arch.parameters:
        raise SystemExit(f"{row.model}: {parameters} parameters here, {arch.parameters} in the planner's table")
    if row.recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def shard(model: transformers.PreTrainedModel) -> None:
    """FSDP2 over all ranks, layer by layer."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def measured(row: Row, device: str, sharded: bool) -> dict[str, Any]:
    """Seconds and peak bytes of the row's steps on this rank."""
    model = built(row, device)
    if sharded:
        shard(model)
    if row.stack == "compiled":
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    cast = row.precision == "mixed" and not sharded
    kind = torch.device(device).type
    seconds = []
    for number in range(WARM_UP + TIMED):
        tokens = torch.randint(model.config.vocab_size, (row.batch, row.seq), device=device)
        finish(kind)
        if number == WARM_UP and kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        with torch.autocast(kind, torch.bfloat16) if cast else nullcontext():
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        finish(kind)
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    peaks = {}
    if kind == "cuda":
        peaks = {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return {"seconds": round(statistics.median(seconds), 5), "spread": round(max(seconds) / min(seconds), 3), **peaks}


def finish(kind: str) -> None:
    """Wait for the device."""
    if kind == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Print a row per configuration as it is measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", help="such as 0-7")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--seconds", type=float, default=400.0, help="start no configuration after that")
    options = parser.parse_args()
    rank, device = int(os.environ.get("LOCAL_RANK", "0")), "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    if options.sharded:
        dist.init_process_group("nccl" if device != "cpu" else "gloo")
    ranks = dist.get_world_size() if options.sharded else 1
    rows = SHARDED if options.sharded else ROWS
    low, _, high = (options.rows or f"0-{len(rows) - 1}").partition("-")
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # read at the first allocation
    begin = time.monotonic()
    for row in rows[int(low) : int(high or low) + 1]:
        if time.monotonic() - begin > options.seconds:
            break
        torch.manual_seed(0)
        try:
            found = measured(row, device, options.sharded)
        except torch.OutOfMemoryError as error:
            found = {"failed": str(error)[:120]}
        if not rank:
            print(json.dumps({**row._asdict(), "gpus": ranks, **found}), flush=True)
        gc.collect()
        torch._dynamo.reset()
        if device != "cpu":
            torch.cuda.empty_cache()
    if options.sharded:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
