"""The longest request first, as throughput alone would have it: nearly all requests wait for a few."""

from aisp_mcp.decoder import SlotCache

SLOTS, LENGTH = 2, 512


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


def serve(requests, emit, **weights):
    cache, waiting, running, free = SlotCache(weights, SLOTS, LENGTH), [], [], [*range(SLOTS)]
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and free:
            one, slot = waiting.pop(max(range(len(waiting)), key=lambda place: waiting[place].tokens)), free.pop()
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
