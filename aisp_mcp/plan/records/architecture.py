"""The architecture of a decoder-only language model, as its published configuration gives it."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class Latent(Record):
    """Multi-head latent attention: one compressed vector and one rotary key per token and layer are cached."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    q_rank: int | None = None


class Window(Record):
    """Layers that attend to the last `tokens` tokens only."""

    tokens: int
    layers: int


class Attention(Record):
    """layers: how many layers attend at all; the others are recurrent."""

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    latent: Latent | None = None
    window: Window | None = None
    bias: bool = Field(default=False, description="Bias on query, key and value projections.")
    output_bias: bool = False
    sinks: bool = Field(default=False, description="One learned logit per head.")
    qk_norm: bool = False


class Experts(Record):
    """count routed experts of `ffn` width, `active` of them per token. dense_layers keep the plain MLP."""

    count: int
    active: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0
    bias: bool = Field(default=False, description="Bias on the router and on every expert projection.")
    router_bias: int = Field(default=0, description="Correction terms per expert of the router.")


class Mlp(Record):
    """Width of the dense MLP; gated: three matrices instead of two."""

    width: int
    gated: bool = True
    bias: bool = False
    experts: Experts | None = None


class Recurrent(Record):
    """State of layers that do not attend: elements per sequence and layer, in the model's dtype and in fp32."""

    layers: int
    elements: int
    fp32_elements: int


class Architecture(Record):
    """One public model, or one that the caller describes."""

    name: str
    layers: int
    hidden: int
    vocab: int
    tied: bool = False
    norms: int = Field(default=2, description="Norm vectors of width `hidden` per layer.")
    attention: Attention
    mlp: Mlp
    recurrent: Recurrent | None = None
    parameters: int | None = Field(default=None, description="As published; the sum of all weight tensors.")
    active: int | None = Field(default=None, description="Parameters that a token touches, where published.")
    source: str
    checked: str | None = Field(default=None, description="Day on which the source was read; None: the caller's own.")
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")
