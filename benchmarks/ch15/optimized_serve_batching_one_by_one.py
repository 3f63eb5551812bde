"""The other extreme: each request by itself, in the order of arrival. No request waits for another one's last token."""

from aisp_mcp.decoder import SlotCache

LENGTH = 640


def serve(requests, emit, **weights):
    cache = SlotCache(weights, 1, LENGTH)
    while new := requests.wait():
        for one in new:
            token = cache.advance([0], [0], [one.prompt])[0, -1].item()
            emit(one.id, token)
            for place in range(len(one.prompt), len(one.prompt) + one.tokens - 1):
                token = cache.advance([0], [place], [[token]])[0, 0].item()
                emit(one.id, token)
