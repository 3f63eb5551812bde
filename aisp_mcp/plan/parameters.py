"""Parameter counts and training FLOPs from an architecture."""

from __future__ import annotations

from functools import lru_cache

from aisp_mcp.plan.architecture import Architecture

KEPT = 256  # results of recent architectures: a search asks for the same ones for thousands of layouts


def attention(arch: Architecture) -> int:
    """Parameters of the attention block of one layer, including its own norms."""
    a, hidden = arch.attention, arch.hidden
    if a.parameters is not None:
        return a.parameters
    if a.latent is not None:
        return _latent(arch)
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    biases = (q + 2 * kv) * a.bias + hidden * a.output_bias + a.heads * a.sinks
    return hidden * (2 * q + 2 * kv) + biases + 2 * a.head_dim * a.qk_norm


def _latent(arch: Architecture) -> int:
    a, hidden = arch.attention, arch.hidden
    m = a.latent
    assert m is not None
    q_width = a.heads * (m.nope_dim + m.rope_dim)
    query = hidden * m.q_rank + m.q_rank + m.q_rank * q_width if m.q_rank else hidden * q_width
    down = hidden * (m.kv_rank + m.rope_dim) + m.kv_rank
    return query + down + m.kv_rank * a.heads * (m.nope_dim + m.v_dim) + a.heads * m.v_dim * hidden


def dense_mlp(arch: Architecture) -> int:
    """Parameters of the plain MLP of one layer."""
    width = arch.mlp.width
    matrices = 3 if arch.mlp.gated else 2
    return matrices * arch.hidden * width + (width * (matrices - 1) + arch.hidden) * arch.mlp.bias


def expert(arch: Architecture) -> int:
    """Parameters of one routed expert; 0 for a dense model."""
    experts = arch.mlp.experts
    if experts is None:
        return 0
    matrices, hidden = 3 if arch.mlp.gated else 2, experts.hidden or arch.hidden
    return matrices * hidden * experts.ffn + ((matrices - 1) * experts.ffn + hidden) * experts.bias


def _mlp_layers(arch: Architecture) -> int:
    return arch.mlp.layers or arch.layers


def moe_layers(arch: Architecture) -> int:
    """Layers whose MLP is a set of experts."""
    experts = arch.mlp.experts
    return _mlp_layers(arch) - experts.dense_layers if experts else 0


@lru_cache(maxsize=KEPT)
def routed(arch: Architecture) -> int:
    """Parameters of all routed experts of the model, which expert parallelism divides."""
    experts = arch.mlp.experts
    return moe_layers(arch) * experts.count * expert(arch) if experts else 0


def embeddings(arch: Architecture) -> int:
    """Parameters of embedding and output head."""
    return arch.vocab * (arch.hidden * (1 if arch.tied else 2) + arch.head_bias)


def _router_and_shared(arch: Architecture) -> int:
    experts = arch.mlp.experts
    if experts is None:
        return 0
    router = experts.count * (arch.hidden + experts.bias + experts.router_bias)
    shared = experts.shared * (3 if arch.mlp.gated else 2) * arch.hidden * (experts.shared_ffn or experts.ffn)
    projections = 2 * arch.hidden * experts.hidden if experts.hidden else 0
    return router + shared + experts.shared_gate * arch.hidden + projections


@lru_cache(maxsize=KEPT)
def total(arch: Architecture) -> int:
    """All parameters: computed, but for listed models whose recurrent layers are not described as published."""
    if arch.recurrent is not None and arch.parameters is not None:
        return arch.parameters
    moe, recurrent = moe_layers(arch), arch.recurrent
    mixers = arch.attention.layers * attention(arch)
    if recurrent is not None:
        mixers += recurrent.layers * (attention(arch) if recurrent.parameters is None else recurrent.parameters)
    mlps = (_mlp_layers(arch) - moe) * dense_mlp(arch) + moe * _router_and_shared(arch) + routed(arch)
    last = arch.final_norm if arch.final_norm is not None else 1 if arch.mlp.gated else 2
    return mixers + mlps + embeddings(arch) + arch.hidden * (arch.layers * arch.norms + last) + beside(arch)


def beside(arch: Architecture) -> int:
    """Parameters that no text token uses."""
    return sum(part.parameters for part in arch.parts)


@lru_cache(maxsize=KEPT)
def active(arch: Architecture) -> int:
    """Parameters that one token uses, including the whole embedding table."""
    if arch.active is not None:
        return arch.active
    experts, used = arch.mlp.experts, total(arch) - beside(arch)
    if experts is None:
        return used
    return used - moe_layers(arch) * (experts.count - experts.active) * expert(arch)


def matmul(arch: Architecture) -> int:
    """Active parameters that take part in matrix products: the embedding look-up does not, the head does."""
    return active(arch) - (0 if arch.tied else arch.vocab * arch.hidden)


@lru_cache(maxsize=KEPT)
def attention_flops(arch: Architecture, seq: int) -> float:
    """Forward FLOPs of causal attention for one sequence, over all layers: half of each square counts."""
    a = arch.attention
    windowed = a.window.layers if a.window else 0
    span = min(seq, a.window.tokens) if a.window else seq
    full = (a.layers - windowed) * seq * seq / 2
    local = windowed * (seq * span - span * span / 2)
    width = a.latent.nope_dim + a.latent.rope_dim + a.latent.v_dim if a.latent else 2 * a.head_dim
    return 2.0 * a.heads * width * (full + local)


@lru_cache(maxsize=KEPT)
def training_flops(arch: Architecture, seq: int) -> float:
    """FLOPs of forward and backward for one token, without recomputation: 6 per matrix parameter plus attention."""
    return 6.0 * matmul(arch) + 3.0 * attention_flops(arch, seq) / seq
