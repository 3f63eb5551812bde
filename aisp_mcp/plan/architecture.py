"""The architecture of a decoder-only language model, from its published configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from aisp_mcp.records import Record

MOST = 10**9
Size = Annotated[int, Field(ge=1, le=MOST)]
Layers = Annotated[int, Field(ge=1, le=10_000)]
Count = Annotated[int, Field(ge=0, le=MOST)]


class Latent(Record):
    """Multi-head latent attention: one compressed vector and one rotary key per token and layer are cached."""

    kv_rank: Size
    rope_dim: Count
    nope_dim: Size
    v_dim: Size
    q_rank: Size | None = None


class Window(Record):
    """Layers that attend only to the last `tokens` tokens."""

    tokens: Size
    layers: Layers
    kv_heads: Size | None = Field(default=None, description="None: as in the other layers; so is head_dim.")
    head_dim: Size | None = None


class Attention(Record):
    """layers: how many layers attend at all; the others are recurrent, or only have an MLP."""

    heads: Size
    kv_heads: Size
    head_dim: Size
    layers: Layers
    latent: Latent | None = None
    window: Window | None = None
    bias: bool = Field(default=False, description="Bias on query, key and value projections.")
    output_bias: bool = False
    sinks: bool = Field(default=False, description="One learned logit per head.")
    qk_norm: bool = False
    parameters: Count | None = Field(
        default=None, description="Of one layer on average, where heads and widths do not give them."
    )
    cached: Size | None = Field(default=None, description="Elements per token and layer, likewise.")
    stride: float = Field(default=1.0, ge=1, description="Tokens that share one entry of the cache.")


class Experts(Record):
    """count routed experts of `ffn` width, `active` of them per token. dense_layers have the plain MLP."""

    count: Size
    active: Size
    ffn: Size
    hidden: Size | None = Field(default=None, description="Width that experts work in, if tokens are projected to it.")
    shared: Count = 0
    shared_ffn: Size | None = Field(default=None, description="None: as wide as a routed expert.")
    shared_gate: bool = False
    dense_layers: Count = 0
    bias: bool = Field(default=False, description="Bias on the router and on every expert projection.")
    router_bias: int = Field(default=0, ge=0, description="Correction terms per expert of the router.")


class Mlp(Record):
    """Width of the dense MLP; gated: three matrices instead of two."""

    width: Size
    gated: bool = True
    bias: bool = False
    layers: Layers | None = Field(default=None, description="Layers that have an MLP or experts; None: all.")
    experts: Experts | None = None


class Recurrent(Record):
    """State of layers that do not attend: elements per sequence and layer, in the model's dtype and in fp32."""

    layers: Layers
    elements: Count
    fp32_elements: Count
    parameters: Count | None = Field(default=None, description="Of one layer; None: as many as attention has.")


class Part(Record):
    """Weights beside the decoder's layers, such as a vision tower or learned positions. No text token uses them."""

    name: str
    parameters: Annotated[int, Field(ge=0, le=1000 * MOST)]


class Architecture(Record):
    """A public model, or one that the caller describes."""

    name: str
    layers: Layers
    hidden: Size
    vocab: Size
    tied: bool = False
    norms: int = Field(default=2, ge=0, le=16, description="Norm vectors of width `hidden` per layer.")
    final_norm: int | None = Field(
        default=None, ge=0, le=4, description="Vectors; None: 2 without a gated MLP, else 1."
    )
    attention: Attention
    mlp: Mlp
    recurrent: Recurrent | None = None
    parameters: int | None = Field(default=None, ge=1, description="As published; the sum of all weight tensors.")
    active: int | None = Field(default=None, ge=1, description="Parameters that a token touches, where published.")
    source: str
    checked: str | None = Field(default=None, description="Day on which the source was read; None: the caller's own.")
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")
    context: Size | None = Field(default=None, description="Longest sequence as published, in tokens.")
    parts: list[Part] = Field(default=[])
    head_bias: bool = False
    listed: str | None = Field(default=None, description="Row of the table that describes it.")
    checkpoint: str | None = Field(default=None, description="Repository or folder that a command names.")
    weights: str | None = Field(default=None, description="Format in which the checkpoint is quantised.")
    assumed: list[str] = Field(default=[], description="What the configuration does not say, or this record cannot.")

    def __hash__(self) -> int:
        """Of a few sizes, so that searches look figures of an architecture up quickly; equality compares all fields."""
        return hash((self.name, self.layers, self.hidden, self.vocab))

    @model_validator(mode="after")
    def _parts_agree(self) -> Architecture:
        """Raise ValueError if two fields contradict each other."""
        for wrong, text in (*_attention_rules(self), *_mlp_rules(self)):
            if wrong:
                raise ValueError(text)
        return self


def _attention_rules(arch: Architecture) -> list[tuple[bool, str]]:
    a, recurrent = arch.attention, arch.recurrent.layers if arch.recurrent else 0
    window = a.window.layers if a.window else 0
    return [
        (a.heads % a.kv_heads != 0, f"{a.heads} heads are not a multiple of {a.kv_heads} key-value heads"),
        (a.layers > arch.layers, f"{a.layers} attending layers exceed the model's {arch.layers} layers"),
        (window > a.layers, f"{window} layers with a window exceed the {a.layers} attending layers"),
        (a.layers + recurrent > arch.layers, f"attending and recurrent layers exceed the model's {arch.layers} layers"),
    ]


def _mlp_rules(arch: Architecture) -> list[tuple[bool, str]]:
    experts = arch.mlp.experts
    if experts is None:
        return []
    return [
        (experts.active > experts.count, f"{experts.active} active experts exceed the {experts.count} experts"),
        (
            experts.dense_layers > (arch.mlp.layers or arch.layers),
            f"{experts.dense_layers} dense layers exceed the {arch.layers} layers",
        ),
    ]
