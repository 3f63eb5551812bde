"""A small decoder-only transformer for serving benchmarks, as functions of static tensors, with plain engines.

RMS norms, rotary positions, grouped-query attention, and a gated MLP or a mixture of experts. Weights are a dict of
tensors with one row per layer, as DecoderBenchmark.params() returns them. An engine owns its key-value cache: forward()
passes it the queries, keys and values of each layer, and it returns the result of attention. SlotCache is the plain
one; serve_continuously() and serve_in_batches() are engines for baselines and for candidates about something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from aisp_mcp.bench.benchmark import Emit, Request, RequestFeed, Rng, ServingBenchmark, Work

HEAD = 32  # elements of an attention head, so that all sizes follow from the weights

Weights = dict[str, Any]
Attend = Callable[[int, Any, Any, Any], Any]
Mlp = Callable[[Any, Any, Any, Any], Any]
Take = Callable[[list[Request]], Request]


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder. experts: 0 for a dense MLP; chosen: experts per token."""

    layers: int = 4
    width: int = 256
    kv_heads: int = 2
    hidden: int = 512
    vocabulary: int = 256
    experts: int = 0
    chosen: int = 2

    @classmethod
    def of(cls, weights: Weights) -> Decoder:
        """The decoder whose weights these are, with the usual number of chosen experts."""
        vocabulary, width = weights["embedding"].shape
        layers, *many, hidden, _ = weights["down"].shape
        kv_heads = (weights["qkv"].shape[-1] - width) // (2 * HEAD)
        return cls(layers, width, kv_heads, hidden, vocabulary, *many)

    def params(self, rng: Any, dtype: str = "float32", later: float = 1.0) -> Weights:
        """Random weights, scaled so that activations keep their size. rng: of ServingBenchmark.params().

        later: factor on the contribution of layers after the first; if it is small, the first layer alone predicts
        well.
        """

        def matrix(*shape: int) -> Any:
            return (rng.randn(*shape) / math.sqrt(shape[-2])).to(getattr(torch, dtype))

        n, width, kv = self.layers, self.width, self.kv_heads * HEAD
        many = (self.experts,) if self.experts else ()
        weights = {
            "embedding": matrix(self.vocabulary, width) * math.sqrt(self.vocabulary),
            "qkv": matrix(n, width, width + 2 * kv),
            "out": matrix(n, width, width),
            "up": matrix(n, *many, width, 2 * self.hidden),
            "down": matrix(n, *many, self.hidden, width),
            "unembedding": matrix(width, self.vocabulary),
        }
        weights["out"][1:] *= later
        weights["down"][1:] *= later
        return {**weights, "router": matrix(n, width, self.experts)} if self.experts else weights

    def forward(self, weights: Weights, tokens: Any, positions: Any, attend: Attend, mlp: Mlp | None = None) -> Any:
        """Final states (batch, length, width) of tokens (batch, length) at these positions (batch, length).

        attend(layer, q, k, v) takes (batch, heads, length, head), k and v with kv_heads, and returns the shape of q.
        mlp(x, up, down, router): instead of mixture() in a decoder with experts.
        """
        batch, length = tokens.shape
        kv, cos, sin = self.kv_heads * HEAD, *self._rotation(positions, weights["embedding"].dtype)
        x = weights["embedding"][tokens]
        for layer in range(self.layers):
            y = _norm(x) @ weights["qkv"][layer]
            q, k, v = (part.view(batch, length, -1, HEAD).transpose(1, 2) for part in y.split((self.width, kv, kv), -1))
            y = attend(layer, _rotate(q, cos, sin), _rotate(k, cos, sin), v)
            x = x + y.transpose(1, 2).reshape(batch, length, self.width) @ weights["out"][layer]
            up, down = weights["up"][layer], weights["down"][layer]
            if self.experts:
                x = x + (mlp or self.mixture)(_norm(x), up, down, weights["router"][layer])
            else:
                x = x + gated(_norm(x), up, down)
        return _norm(x)

    def logits(self, tokens: Any, **weights: Any) -> Any:
        """Logits (batch, length, vocabulary) after each of tokens (batch, length): whole prompts, without a cache."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)

        def attend(_: int, q: Any, k: Any, v: Any) -> Any:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        return self.forward(weights, tokens, positions, attend) @ weights["unembedding"]

    def route(self, x: Any, router: Any) -> tuple[Any, Any]:
        """(shares, experts), both (..., chosen): the best experts of each token. A share is the distance to the first
        expert that was not chosen, so an expert that rounding exchanges has a share of almost zero.
        """
        best, experts = (x @ router).topk(self.chosen + 1)
        shares = best[..., :-1] - best[..., -1:]
        return shares / shares.sum(-1, keepdim=True), experts[..., :-1]

    def mixture(self, x: Any, up: Any, down: Any, router: Any) -> Any:
        """Compute every token with every expert; shares of experts that were not chosen are zero."""
        shares, experts = self.route(x, router)
        dense = x.new_zeros((*x.shape[:-1], self.experts)).scatter(-1, experts, shares)
        return (gated(x.unsqueeze(-3), up, down) * dense.mT.unsqueeze(-1)).sum(-3)

    def _rotation(self, positions: Any, dtype: Any) -> tuple[Any, Any]:
        """Cosines and sines (batch, 1, length, head / 2)."""
        half = HEAD // 2
        steps = torch.arange(half, device=positions.device, dtype=torch.float64) / half
        angles = positions[:, None, :, None] * (10000.0**-steps)
        return angles.cos().to(dtype), angles.sin().to(dtype)


class DecoderBenchmark(ServingBenchmark):
    """The specification of an engine for a Decoder: static tensors, logits and work follow from its sizes."""

    layers: int = 4
    width: int = 256
    experts: int = 0

    @property
    def decoder(self) -> Decoder:
        """The decoder of this size, with a hidden layer of twice the width."""
        vocabulary, hidden = self.vocabulary, 2 * self.width
        return Decoder(self.layers, self.width, hidden=hidden, vocabulary=vocabulary, experts=self.experts)

    def params(self, rng: Rng) -> Weights:
        return self.decoder.params(rng)

    def work(self) -> Work:
        """Work of the most tokens that a trace can ask for; rates count emitted tokens."""
        return Work(items=self.max_requests * self.max_tokens, unit="tokens")

    def logits(self, tokens: Any, **weights: Any) -> Any:
        return self.decoder.logits(tokens, **weights)


def gated(x: Any, up: Any, down: Any) -> Any:
    """Gated MLP: silu of one half of the hidden elements times the other."""
    gate, value = (x @ up).chunk(2, -1)
    return (functional.silu(gate) * value) @ down


def _norm(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class SlotCache:
    """Keys and values of `slots` sequences of up to `length` tokens, allocated once.

    advance() is a step of an engine. at() gives the attend() of a step in which some slots each take `count` new tokens
    from their start on. If a sequence takes fewer, the rest is padding, which later tokens overwrite before it is read.
    mlp: see Decoder.forward().
    """

    def __init__(self, weights: Weights, slots: int, length: int, mlp: Mlp | None = None) -> None:
        self.weights, self.decoder, self.mlp = weights, Decoder.of(weights), mlp
        self.free = [*range(slots)]
        shape = (self.decoder.layers, slots, self.decoder.kv_heads, length, HEAD)
        self.keys, self.values = weights["embedding"].new_zeros(shape), weights["embedding"].new_zeros(shape)

    def prefill(self, slot: int, prompt: Sequence[int]) -> int:
        """Greedy next token after a prompt, which is stored in a free slot."""
        return int(self.advance([slot], [0], [prompt])[0, -1])

    def release(self, slot: int) -> None:
        """Free the slot of a finished sequence."""
        self.free.append(slot)

    def advance(self, slots: list[int], starts: list[int], tokens: list[Sequence[int]]) -> Any:
        """Greedy next token after each of the new tokens, int64 (batch, longest of them). tokens: one row per slot."""
        longest, device = max(map(len, tokens)), self.keys.device
        given = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens], device=device)
        placed = torch.tensor(slots, device=device), torch.tensor(starts, device=device)
        positions, attend = self.at(*placed, longest)
        states = self.decoder.forward(self.weights, given, positions, attend, self.mlp)
        return (states @ self.weights["unembedding"]).argmax(-1)

    def at(self, slots: Any, starts: Any, count: int) -> tuple[Any, Attend]:
        """(positions, attend) of a step. slots, starts: int64 (batch)."""
        positions = starts[:, None] + torch.arange(count, device=starts.device)
        end = int(positions.max()) + 1
        mask = torch.arange(end, device=starts.device) <= positions[:, None, :, None]
        rows = slots[:, None]

        def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions], values[rows, :, positions] = k.transpose(1, 2), v.transpose(1, 2)
            cached = keys[slots, :, :end], values[slots, :, :end]
            return functional.scaled_dot_product_attention(q, *cached, attn_mask=mask, enable_gqa=True)

        return positions, attend


@dataclass
class Running:
    """A sequence in a slot. token: the last one emitted; position: its index; left: tokens still to come."""

    id: int
    slot: int
    token: int
    position: int
    left: int


def admit(cache: SlotCache, request: Request, emit: Emit) -> Running:
    """Give a request a free slot, process its prompt and emit its first token."""
    slot = cache.free.pop()
    token = cache.prefill(slot, request.prompt)
    emit(request.id, token)
    return Running(request.id, slot, token, len(request.prompt), request.tokens - 1)


def decode(cache: SlotCache, running: list[Running], emit: Emit) -> list[Running]:
    """Emit the next token of each sequence, and release the slots of finished ones. Returns the others."""
    if batch := [sequence for sequence in running if sequence.left]:
        slots, positions = [sequence.slot for sequence in batch], [sequence.position for sequence in batch]
        tokens = cache.advance(slots, positions, [[sequence.token] for sequence in batch])[:, 0].tolist()
        for sequence, token in zip(batch, tokens, strict=True):
            sequence.token, sequence.position, sequence.left = token, sequence.position + 1, sequence.left - 1
            emit(sequence.id, token)
    for sequence in running:
        if not sequence.left:
            cache.release(sequence.slot)
    return [sequence for sequence in running if sequence.left]


def first_come(waiting: list[Request]) -> Request:
    """Take the request that has waited longest."""
    return waiting.pop(0)


def serve_continuously(requests: RequestFeed, emit: Emit, cache: SlotCache, take: Take = first_come) -> None:
    """Continuous batching: a free slot takes a request at once. With one slot, requests run one by one.

    take: remove the next request from the waiting ones, and return it.
    """
    waiting, running = list[Request](), list[Running]()
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and cache.free:
            running.append(admit(cache, take(waiting), emit))
        running = decode(cache, running, emit)


def serve_in_batches(requests: RequestFeed, emit: Emit, cache: SlotCache) -> None:
    """Static batches: waiting requests start together, and the next ones wait for the longest of them.

    Slots of finished requests continue to compute, as in an engine that cannot take a row out of its batch.
    """
    waiting, slots = list[Request](), cache.free
    while waiting := waiting + (requests.poll() if waiting else requests.wait()):
        batch, waiting = waiting[: len(slots)], waiting[len(slots) :]
        last = list[int]()
        for slot, sequence in zip(slots, batch, strict=False):
            last.append(cache.prefill(slot, sequence.prompt))
            emit(sequence.id, last[-1])
        for step in range(1, max(request.tokens for request in batch)):
            starts = [len(request.prompt) + step - 1 for request in batch]
            last = cache.advance(slots[: len(batch)], starts, [[token] for token in last])[:, 0].tolist()
            for sequence, token in zip(batch, last, strict=True):
                if step < sequence.tokens:
                    emit(sequence.id, token)
