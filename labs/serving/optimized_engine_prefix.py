"""Step 3: continuous batching, and keys and values of shared beginnings of prompts kept in blocks of 32 tokens."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

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
        token = int(self.advance([slot], [begin], [prompt[begin:]])[0, -1])
        for end in range(begin + BLOCK, len(prompt) + 1, BLOCK):
            span = slice(end - BLOCK, end)
            self.kept[prompt[:end]] = self.keys[:, slot, :, span].clone(), self.values[:, slot, :, span].clone()
        while len(self.kept) > MOST:
            self.kept.pop(next(iter(self.kept)))
        return token


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, PrefixCache(weights, SLOTS, LENGTH))
