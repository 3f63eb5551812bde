"""Continuous batching in which a prompt is computed at once: all running requests wait for a long one."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously

SLOTS = 8


class ServeChunkedPrefill(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("itl", 95)
    max_regression = 5.0  # a prompt in chunks takes longer
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 20, 1024, 32
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 15, "max_prompt": 256, "max_tokens": 32}}

    def trace(self, rng):
        """Two long prompts with short answers among five requests, the others are short with long answers."""
        gaps = rng.randint(200, 801, self.max_requests).tolist()
        long = [one % 5 in (1, 3) for one in range(self.max_requests)]
        lengths = [self.max_prompt if one else self.max_prompt // 32 for one in long]
        wanted = [self.max_tokens // 8 if one else self.max_tokens for one in long]
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
