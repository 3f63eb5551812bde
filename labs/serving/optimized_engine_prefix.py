"""Step 3: continuous batching, and keys and values of shared beginnings of prompts kept in blocks of 32 tokens."""

from collections import deque

from aisp_mcp.decoder import SlotCache

SLOTS, LENGTH, BLOCK, MOST = 8, 1152, 32, 512


class PrefixCache(SlotCache):
    """Blocks of keys and values under all tokens up to their end."""

    def __init__(self, *args):
        super().__init__(*args)
        self.kept = {}

    def prefill(self, slot, prompt):
        """The first token behind a prompt, whose known blocks are copied."""
        begin = 0
        while begin + BLOCK < len(prompt) and (found := self.kept.get(prompt[: begin + BLOCK])):
            span = slice(begin, begin + BLOCK)
            self.keys[:, slot, :, span], self.values[:, slot, :, span] = found
            begin += BLOCK
        token = self.advance([slot], [begin], [prompt[begin:]])[0, -1].item()
        for end in range(begin + BLOCK, len(prompt) + 1, BLOCK):
            span = slice(end - BLOCK, end)
            self.kept[prompt[:end]] = self.keys[:, slot, :, span].clone(), self.values[:, slot, :, span].clone()
        while len(self.kept) > MOST:
            self.kept.pop(next(iter(self.kept)))
        return token


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


def serve(requests, emit, **weights):
    cache, waiting, running, free = PrefixCache(weights, SLOTS, LENGTH), deque(), [], [*range(SLOTS)]
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and free:
            one, slot = waiting.popleft(), free.pop()
            running.append(Sequence(one, slot, cache.prefill(slot, one.prompt)))
            emit(one.id, running[-1].token)
        if batch := [one for one in running if one.left]:
            slots, places = [one.slot for one in batch], [one.place for one in batch]
            tokens = cache.advance(slots, places, [[one.token] for one in batch])[:, 0].tolist()
            for one, token in zip(batch, tokens, strict=True):
                one.token, one.place, one.left = token, one.place + 1, one.left - 1
                emit(one.id, token)
        free += [one.slot for one in running if not one.left]
        running = [one for one in running if one.left]
