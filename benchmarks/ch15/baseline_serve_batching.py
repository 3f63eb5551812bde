"""Static batches in an engine: requests that wait start together, and the next ones wait for the longest of them."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, Slo
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_in_batches

SLOTS = 8


class ServeBatching(DecoderBenchmark):
    goal = "throughput"
    slo = Slo(ttft=40.0)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 32, 512, 64
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 24, "max_prompt": 32, "max_tokens": 64}}

    def trace(self, rng):
        """Twenty requests in the time of one by itself; a few want many tokens, most want few."""
        gaps = rng.randint(0, 101, self.max_requests).tolist()
        lengths = rng.randint(self.max_prompt // 4, self.max_prompt + 1, self.max_requests).tolist()
        wanted = [self.max_tokens // (8 if one else 1) for one in rng.randint(0, 4, self.max_requests).tolist()]
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def serve(self, requests, emit, **weights):
        serve_in_batches(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
