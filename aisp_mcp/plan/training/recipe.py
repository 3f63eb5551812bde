"""The bytes that a training recipe stores per parameter, and its arithmetic."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.plan import parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import LogitBytes
from aisp_mcp.plan.training.unfused import Precision
from aisp_mcp.records import Record

Optimizer = Literal["adam", "adam8bit", "adafactor", "muon", "sgd"]
# Bytes per parameter. Adam: two fp32 moments. 8-bit: two of one byte (block scales are below 2 %). Adafactor: row and
# column sums only. Muon: one fp32 momentum. SGD: one momentum.
MOMENTS: dict[str, float] = {"adam": 8, "adam8bit": 2, "adafactor": 0, "muon": 4, "sgd": 4}
MASTER = 4


class Recipe(Record):
    """Bytes per parameter, the width of activations, and the options that change memory or time."""

    name: str
    weights: float
    gradients: int
    optimizer: float = Field(description="Moments, and the fp32 copy of the weights where there is one.")
    compute: str = Field(description="Type of the matrix products: a key of the GPU's peaks.")
    lora_rank: int | None = Field(default=None, description="Weights are frozen; adapters of this rank are trained.")
    flash: bool = True
    fused_loss: bool = Field(default=False, description="Cross entropy in chunks: no whole logits.")
    dropout: bool = False
    sequence_parallel: bool = True
    reshard: bool = Field(default=True, description="FSDP frees gathered weights after the forward pass.")
    offload: bool = Field(default=False, description="Optimizer state in host memory.")
    logits: LogitBytes = LogitBytes(whole=12, split=8)
    keeps_gathered: bool = Field(default=False, description="As of the stack; so are the two below.")
    unfused: bool = False
    torch_weights: bool = False

    @property
    def activations(self) -> int:
        """Bytes of an activation."""
        return 4 if self.compute == "fp32" else 2

    @property
    def wide_weights(self) -> bool:
        """Weights and gradients are fp32 and cast to 16 bits where they are used: PyTorch's own mixed precision."""
        return self.torch_weights and self.name == "mixed" and self.lora_rank is None

    def operators(self, zero: int) -> Precision:
        """Precision between products. Autocast casts each product's operands; FSDP casts a layer's weights instead."""
        if self.compute == "fp32":
            return "fp32"
        return "autocast" if self.wide_weights and zero < 3 else "16 bits"

    def __hash__(self) -> int:
        """Of a few fields, so that searches look figures up quickly; equality compares all of them."""
        return hash((self.name, self.optimizer, self.keeps_gathered, self.logits.whole, self.logits.split))


RECIPES = {
    "mixed": Recipe(name="mixed", weights=2, gradients=2, optimizer=12, compute="bf16"),
    "bf16": Recipe(name="bf16", weights=2, gradients=2, optimizer=4, compute="bf16"),
    "fp32": Recipe(name="fp32", weights=4, gradients=4, optimizer=8, compute="fp32"),
    "fp8": Recipe(name="fp8", weights=2, gradients=2, optimizer=12, compute="fp8"),
    "fp4": Recipe(name="fp4", weights=2, gradients=2, optimizer=12, compute="fp4"),
    # QLoRA: frozen weights in 4 bits with doubly quantised scales, 4.127 bits each; adapters as in mixed precision.
    "nf4": Recipe(name="nf4", weights=4.127 / 8, gradients=2, optimizer=12, compute="bf16"),
}


@lru_cache(maxsize=64)
def variant(precision: str, options: tuple[tuple[str, Any], ...]) -> Recipe:
    """A recipe with other options; the same object for the same question."""
    return RECIPES[precision].model_copy(update=dict(options))


def optimizer_bytes(precision: str, optimizer: Optimizer) -> float:
    """Optimizer bytes per parameter: moments, and fp32 master weights under mixed, fp8 and fp4 precision."""
    moments = MOMENTS[optimizer]
    if precision == "bf16":
        return moments / 2 if optimizer != "adam8bit" else moments
    return moments + (0 if precision == "fp32" else MASTER)


def adapters(arch: Architecture, rank: int) -> int:
    """Parameters of low-rank adapters on every projection of attention and MLP: rank x (in + out) each."""
    a, hidden = arch.attention, arch.hidden
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    attention = 2 * (hidden + q) + 2 * (hidden + kv)
    mlp = (3 if arch.mlp.gated else 2) * (hidden + arch.mlp.width)
    return rank * arch.layers * (attention + mlp)


@lru_cache(maxsize=parameters.KEPT)
def trainable_share(arch: Architecture, recipe: Recipe) -> float:
    """Trained over all parameters."""
    if recipe.lora_rank is None:
        return 1.0
    return min(1.0, adapters(arch, recipe.lora_rank) / parameters.total(arch))
