"""Requests in the order of arrival: many short ones wait behind a few long ones."""

from collections import deque
from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal, ServingBenchmark, Work
from aisp_mcp.decoder import Decoder, SlotCache

SLOTS = 2


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


class ServeShortestFirst(ServingBenchmark):
    goal = "latency"
    latency = LatencyGoal("e2e", 50)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 24, 256, 128
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 20, "max_prompt": 16, "max_tokens": 64}}

    @property
    def decoder(self):
        return Decoder(layers=self.layers, width=self.width, hidden=2 * self.width)

    def params(self, rng):
        return self.decoder.params(rng)

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

    def work(self):
        return Work(items=self.max_requests * self.max_tokens)

    def logits(self, tokens, **weights):
        return self.decoder.logits(tokens, **weights)

    def serve(self, requests, emit, **weights):
        cache, waiting, running, free = (
            SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens),
            deque(),
            [],
            [*range(SLOTS)],
        )
        while True:
            waiting += requests.poll() if waiting or running else requests.wait()
            if not waiting and not running:
                return
            while waiting and free:
                one, slot = waiting.popleft(), free.pop()
                running.append(Sequence(one, slot, cache.advance([slot], [0], [one.prompt])[0, -1].item()))
                emit(one.id, running[-1].token)
            if batch := [one for one in running if one.left]:
                slots, places = [one.slot for one in batch], [one.place for one in batch]
                tokens = cache.advance(slots, places, [[one.token] for one in batch])[:, 0].tolist()
                for one, token in zip(batch, tokens, strict=True):
                    one.token, one.place, one.left = token, one.place + 1, one.left - 1
                    emit(one.id, token)
            free += [one.slot for one in running if not one.left]
            running = [one for one in running if one.left]
