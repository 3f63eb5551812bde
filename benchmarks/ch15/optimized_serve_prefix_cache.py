"""Keys and values of blocks of 32 tokens are kept under all tokens up to their end, and copied for later requests."""

from aisp_mcp.bench.decoder import SlotCache

BLOCK, LENGTH, MOST = 32, 4160, 256


def serve(requests, emit, **weights):
    cache, kept = SlotCache(weights, 1, LENGTH), {}
    while new := requests.wait():
        for one in new:
            begin = 0
            while begin + BLOCK < len(one.prompt) and (found := kept.get(one.prompt[: begin + BLOCK])):
                span = slice(begin, begin + BLOCK)
                cache.keys[:, 0, :, span], cache.values[:, 0, :, span] = found
                begin += BLOCK
            token = cache.advance([0], [begin], [one.prompt[begin:]])[0, -1].item()
            emit(one.id, token)
            for place in range(len(one.prompt), len(one.prompt) + one.tokens - 1):
                token = cache.advance([0], [place], [[token]])[0, 0].item()
                emit(one.id, token)
            for end in range(begin + BLOCK, len(one.prompt) + 1, BLOCK):
                span = slice(end - BLOCK, end)
                kept[one.prompt[:end]] = cache.keys[:, 0, :, span].clone(), cache.values[:, 0, :, span].clone()
            while len(kept) > MOST:
                kept.pop(next(iter(kept)))
