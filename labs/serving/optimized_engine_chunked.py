"""Step 2: continuous batching, and prompts in chunks of 64 tokens between the steps of running requests."""

from collections import deque

from aisp_mcp.bench.decoder import SlotCache

SLOTS, CHUNK = 8, 64


class Sequence:
    """A request in a slot. place: tokens of it in the cache; token: the last one emitted, None during its prefill."""

    def __init__(self, request, slot):
        self.id, self.prompt, self.slot = request.id, request.prompt, slot
        self.place, self.token, self.left = 0, None, request.tokens


def serve(requests, emit, **weights):
    cache, waiting, running, free = SlotCache(weights, SLOTS, 1152), deque(), [], [*range(SLOTS)]
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and free:
            running.append(Sequence(waiting.popleft(), free.pop()))
        if one := next((one for one in running if one.token is None), None):
            chunk = one.prompt[one.place : one.place + CHUNK]
            token = cache.advance([one.slot], [one.place], [chunk])[0, -1].item()
            one.place += len(chunk)
            if one.place == len(one.prompt):
                one.token, one.left = token, one.left - 1
                emit(one.id, token)
        if batch := [one for one in running if one.token is not None and one.left]:
            slots, places = [one.slot for one in batch], [one.place for one in batch]
            tokens = cache.advance(slots, places, [[one.token] for one in batch])[:, 0].tolist()
            for one, token in zip(batch, tokens, strict=True):
                one.token, one.place, one.left = token, one.place + 1, one.left - 1
                emit(one.id, token)
        free += [one.slot for one in running if not one.left]
        running = [one for one in running if one.left]
