"""Continuous batching in which a prompt is computed at once: all running requests wait for a long one."""

from collections import deque
from itertools import accumulate

from aisp_mcp.bench import Arrival, LatencyGoal, ServingBenchmark, Work
from aisp_mcp.decoder import Decoder, SlotCache

SLOTS = 8


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


class ServeChunkedPrefill(ServingBenchmark):
    goal = "latency"
    latency = LatencyGoal("itl", 95)
    max_regression = 5.0  # a prompt in chunks takes longer
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 20, 1024, 32
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 15, "max_prompt": 256, "max_tokens": 32}}

    @property
    def decoder(self):
        return Decoder(layers=self.layers, width=self.width, hidden=2 * self.width)

    def params(self, rng):
        return self.decoder.params(rng)

    def trace(self, rng):
        """Two long prompts with short answers among five requests, the others are short with long answers."""
        gaps = rng.randint(200, 801, self.max_requests).tolist()
        long = [one % 5 in (1, 3) for one in range(self.max_requests)]
        lengths = [self.max_prompt if one else self.max_prompt // 32 for one in long]
        wanted = [self.max_tokens // 8 if one else self.max_tokens for one in long]
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def work(self):
        return Work(items=self.max_requests * self.max_tokens)

    def logits(self, tokens, **weights):
        return self.decoder.logits(tokens, **weights)

    def serve(self, requests, emit, **weights):
        cache = SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens)
        waiting, running, free = deque(), [], [*range(SLOTS)]
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
