"""Overload, first come first served: each request waits a little longer than the last, until none comes in time."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, Slo
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously

SLOTS = 4


class ServeAdmission(DecoderBenchmark):
    goal = "throughput"
    slo = Slo(ttft=12.0)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 40, 256, 32
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 40, "max_prompt": 32, "max_tokens": 16}}

    def trace(self, rng):
        """Five times as many requests as one by one can be served."""
        gaps = rng.randint(0, 401, self.max_requests).tolist()
        prompts = [rng.randint(0, self.vocabulary, self.max_prompt).tolist() for _ in gaps]
        return [
            Arrival(at / 1000, prompt, self.max_tokens) for at, prompt in zip(accumulate(gaps), prompts, strict=True)
        ]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
