"""Requests with few system prompts between them, each computed from its first token."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously


class ServePrefixCache(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("ttft", 50)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 16, 1024, 16
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 16, "max_prompt": 256, "max_tokens": 8}}

    def trace(self, rng):
        """Two system prompts, new for each trace, and a question of a request's own behind one of them."""
        gaps = rng.randint(500, 1301, self.max_requests).tolist()
        system = [rng.randint(0, self.vocabulary, self.max_prompt * 7 // 8).tolist() for _ in range(2)]
        own = rng.randint(4, self.max_prompt // 8 + 1, self.max_requests).tolist()
        prompts = [system[n % 2] + rng.randint(0, self.vocabulary, length).tolist() for n, length in enumerate(own)]
        return [
            Arrival(at / 1000, prompt, self.max_tokens) for at, prompt in zip(accumulate(gaps), prompts, strict=True)
        ]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, 1, self.max_prompt + self.max_tokens))
