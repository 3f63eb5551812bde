"""Keys and values that grow: every step makes longer copies of each request's, and pads them to one batch."""

from collections import deque

import torch
from torch.nn import functional

from aisp_mcp.bench import Arrival
from aisp_mcp.bench.decoder import HEAD, Decoder, DecoderBenchmark

BATCH = 8


class Sequence:
    """A running request. held: keys and values (layers, kv heads, length, head) of all its tokens so far."""

    def __init__(self, request, decoder, like):
        self.id, self.new, self.left = request.id, list(request.prompt), request.tokens
        shape = (decoder.layers, decoder.kv_heads, 0, HEAD)
        self.held = [like.new_zeros(shape), like.new_zeros(shape)]

    @property
    def length(self):
        return self.held[0].shape[2]


class ServePagedKv(DecoderBenchmark):
    goal = "throughput"
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 16, 1024, 64
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 12, "max_prompt": 192, "max_tokens": 24}}

    @property
    def decoder(self):
        return Decoder(layers=self.layers, width=self.width, kv_heads=self.width // HEAD, hidden=self.width)

    def trace(self, rng):
        """All requests at once, with a long prompt each: the batch is full until the end."""
        lengths = rng.randint(self.max_prompt // 2, self.max_prompt + 1, self.max_requests).tolist()
        return [Arrival(0.0, rng.randint(0, self.vocabulary, length).tolist(), self.max_tokens) for length in lengths]

    def serve(self, requests, emit, **weights):
        decoder, waiting, running = Decoder.of(weights), deque(), []
        while True:
            waiting += requests.poll() if waiting or running else requests.wait()
            if not waiting and not running:
                return
            while waiting and len(running) < BATCH:
                running.append(Sequence(waiting.popleft(), decoder, weights["embedding"]))
                step(decoder, weights, running[-1:], emit)
            if batch := [one for one in running if one.left]:
                step(decoder, weights, batch, emit)
            running = [one for one in running if one.left]


def step(decoder, weights, batch, emit):
    """Take the new tokens of each request of the batch, and emit the next one."""
    device = weights["embedding"].device
    tokens = torch.tensor([one.new for one in batch], device=device)
    starts, count = torch.tensor([one.length for one in batch], device=device), tokens.shape[1]
    positions = starts[:, None] + torch.arange(count, device=device)
    places = torch.arange(int(positions.max()) + 1, device=device)
    mask = places <= positions[:, None, :, None]
    grown = []

    def attend(layer, q, k, v):
        longer = [
            [torch.cat((one.held[which][layer], new[row]), 1) for row, one in enumerate(batch)]
            for which, new in enumerate((k, v))
        ]
        grown.append(longer)
        padded = (
            torch.stack([functional.pad(row, (0, 0, 0, len(places) - row.shape[1])) for row in rows]) for rows in longer
        )
        return functional.scaled_dot_product_attention(q, *padded, attn_mask=mask, enable_gqa=True)

    states = decoder.forward(weights, tokens, positions, attend)[:, -1]
    for row, (one, token) in enumerate(zip(batch, (states @ weights["unembedding"]).argmax(-1).tolist(), strict=True)):
        one.held = [torch.stack([layer[which][row] for layer in grown]) for which in range(2)]
        one.new, one.left = [token], one.left - 1
        emit(one.id, token)
