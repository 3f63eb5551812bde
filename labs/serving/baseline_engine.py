"""An engine without any technique: static batches, whole prompts, each from its first token."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, ServingBenchmark, Slo, Work
from aisp_mcp.decoder import Decoder, SlotCache

SLOTS = 8


class Engine(ServingBenchmark):
    goal = "throughput"
    slo = Slo(ttft=30.0)
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 32, 512, 64
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 20, "max_prompt": 128, "max_tokens": 48}}

    @property
    def decoder(self):
        return Decoder(layers=self.layers, width=self.width, hidden=2 * self.width)

    def params(self, rng):
        return self.decoder.params(rng)

    def trace(self, rng):
        """Two system prompts and questions of a request's own; a few want many tokens, most want few."""
        gaps = rng.randint(0, 101, self.max_requests).tolist()
        system = [rng.randint(0, self.vocabulary, self.max_prompt * 3 // 4).tolist() for _ in range(2)]
        own = rng.randint(4, self.max_prompt // 4 + 1, self.max_requests).tolist()
        prompts = [system[n % 2] + rng.randint(0, self.vocabulary, length).tolist() for n, length in enumerate(own)]
        wanted = [self.max_tokens // (8 if one else 1) for one in rng.randint(0, 4, self.max_requests).tolist()]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def work(self):
        return Work(items=self.max_requests * self.max_tokens)

    def logits(self, tokens, **weights):
        return self.decoder.logits(tokens, **weights)

    def serve(self, requests, emit, **weights):
        cache, waiting = SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens), []
        while waiting := waiting + (requests.poll() if waiting else requests.wait()):
            batch, waiting = waiting[:SLOTS], waiting[SLOTS:]
            slots, last = [*range(len(batch))], []
            for slot, one in enumerate(batch):
                last.append(cache.advance([slot], [0], [one.prompt])[0, -1].item())
                emit(one.id, last[-1])
            for step in range(1, max(one.tokens for one in batch)):
                starts = [len(one.prompt) + step - 1 for one in batch]
                last = cache.advance(slots, starts, [[token] for token in last])[:, 0].tolist()
                for one, token in zip(batch, last, strict=True):
                    if step < one.tokens:
                        emit(one.id, token)
