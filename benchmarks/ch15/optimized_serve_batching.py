"""Continuous batching: a request starts as soon as a slot is free, and its slot is free as soon as it is done."""

from collections import deque

from aisp_mcp.bench.decoder import SlotCache

SLOTS, LENGTH = 8, 640


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


def serve(requests, emit, **weights):
    cache, waiting, running, free = SlotCache(weights, SLOTS, LENGTH), deque(), [], [*range(SLOTS)]
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and free:
            one, slot = waiting.popleft(), free.pop()
            running.append(Sequence(one, slot, cache.advance([slot], [0], [one.prompt])[0, -1].item()))
            emit(one.id, running[-1].token)
        batch = [one for one in running if one.left]
        if batch:
            places = [one.place for one in batch]
            tokens = cache.advance([one.slot for one in batch], places, [[one.token] for one in batch])[:, 0].tolist()
            for one, token in zip(batch, tokens, strict=True):
                one.token, one.place, one.left = token, one.place + 1, one.left - 1
                emit(one.id, token)
        free += [one.slot for one in running if not one.left]
        running = [one for one in running if one.left]
