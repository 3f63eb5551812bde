"""An engine without any technique: static batches, whole prompts, each from its first token."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, Slo
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_in_batches

SLOTS = 8


class Engine(DecoderBenchmark):
    goal = "throughput"
    slo = Slo(ttft=30.0)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 32, 512, 64
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 20, "max_prompt": 128, "max_tokens": 48}}

    def trace(self, rng):
        """Two system prompts and questions of a request's own; a few want many tokens, most want few."""
        gaps = rng.randint(0, 101, self.max_requests).tolist()
        system = [rng.randint(0, self.vocabulary, self.max_prompt * 3 // 4).tolist() for _ in range(2)]
        own = rng.randint(4, self.max_prompt // 4 + 1, self.max_requests).tolist()
        prompts = [system[n % 2] + rng.randint(0, self.vocabulary, length).tolist() for n, length in enumerate(own)]
        wanted = [self.max_tokens // (8 if one else 1) for one in rng.randint(0, 4, self.max_requests).tolist()]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def serve(self, requests, emit, **weights):
        serve_in_batches(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
