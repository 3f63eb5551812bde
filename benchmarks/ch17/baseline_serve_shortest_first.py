"""Requests in the order of arrival: many short ones wait behind a few long ones."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously

SLOTS = 2


class ServeShortestFirst(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("e2e", 50)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 24, 256, 128
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 20, "max_prompt": 16, "max_tokens": 64}}

    def trace(self, rng):
        """A burst: a quarter of the requests want sixteen times as many tokens as the others."""
        gaps = rng.randint(0, 101, self.max_requests).tolist()
        long = [rank < self.max_requests // 4 for rank in rng.permutation(self.max_requests).tolist()]
        rows = [(rng.randint(0, self.vocabulary, self.max_prompt).tolist(), one) for one in long]
        wanted = self.max_tokens, self.max_tokens // 16
        return [
            Arrival(at / 1000, prompt, wanted[0 if one else 1])
            for at, (prompt, one) in zip(accumulate(gaps), rows, strict=True)
        ]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
