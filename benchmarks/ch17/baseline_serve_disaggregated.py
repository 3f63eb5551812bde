"""One process that computes prompts and decodes in turn: decoding requests wait for every prompt."""

from itertools import accumulate

import torch

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_continuously

SLOTS = 8


class ServeDisaggregated(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("itl", 99)
    threads = 2  # cores of a side: one for each process
    max_regression = 5.0  # a prompt beside others takes longer
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 20, 1024, 32
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 15, "max_prompt": 768, "max_tokens": 48}}

    def trace(self, rng):
        """Every third request has a long prompt and a short answer, the others have short prompts and long answers."""
        gaps = rng.randint(200, 801, self.max_requests).tolist()
        long = [one % 3 == 1 for one in range(self.max_requests)]
        lengths = [self.max_prompt if one else self.max_prompt // 32 for one in long]
        wanted = [self.max_tokens // 8 if one else self.max_tokens for one in long]
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def serve(self, requests, emit, **weights):
        torch.set_num_threads(1)  # as each process of the candidates; matrices are small
        serve_continuously(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
