"""Requests that are too late already wait until nobody is left who can be in time; they are served, but last."""

import math
import time

from aisp_mcp.decoder import SlotCache

SLOTS, LENGTH = 4, 320
TTFT = 8.0  # of prefills by themselves: the service level, and some room


def pick(waiting, limit_s):
    """The first request that can still be in time, else the first of all."""
    now = time.perf_counter()
    place = next((place for place, (came, _) in enumerate(waiting) if now - came < limit_s), 0)
    return waiting.pop(place)[1]


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


def serve(requests, emit, **weights):
    cache, waiting, running, free = SlotCache(weights, SLOTS, LENGTH), [], [], [*range(SLOTS)]
    shortest = math.inf
    while True:
        new = requests.poll() if waiting or running else requests.wait()
        waiting += [(time.perf_counter(), one) for one in new]
        if not waiting and not running:
            return
        while waiting and free:
            one, slot = pick(waiting, TTFT * shortest), free.pop()
            begin = time.perf_counter()
            running.append(Sequence(one, slot, cache.advance([slot], [0], [one.prompt])[0, -1].item()))
            emit(one.id, running[-1].token)
            shortest = min(shortest, time.perf_counter() - begin)
        if batch := [one for one in running if one.left]:
            slots, places = [one.slot for one in batch], [one.place for one in batch]
            tokens = cache.advance(slots, places, [[one.token] for one in batch])[:, 0].tolist()
            for one, token in zip(batch, tokens, strict=True):
                one.token, one.place, one.left = token, one.place + 1, one.left - 1
                emit(one.id, token)
        free += [one.slot for one in running if not one.left]
        running = [one for one in running if one.left]
