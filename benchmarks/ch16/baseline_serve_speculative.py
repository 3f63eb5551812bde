"""Greedy decoding of one request at a time: one pass over all weights for every token."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously


class ServeSpeculative(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("e2e", 50)
    layers, width, max_requests, max_prompt, max_tokens = 6, 2048, 6, 128, 48
    sizes = {"small": {"layers": 4, "width": 128, "max_requests": 6, "max_prompt": 32, "max_tokens": 32}}

    def params(self, rng):
        """The first layer alone predicts most tokens, as a draft of the same family does."""
        return self.decoder.params(rng, later=0.1)

    def trace(self, rng):
        gaps = rng.randint(500, 1301, self.max_requests).tolist()
        lengths = rng.randint(self.max_prompt // 4, self.max_prompt + 1, self.max_requests).tolist()
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [
            Arrival(at / 1000, prompt, self.max_tokens) for at, prompt in zip(accumulate(gaps), prompts, strict=True)
        ]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, 1, self.max_prompt + self.max_tokens))
