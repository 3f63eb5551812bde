"""One block of memory per slot, as long as the longest request: nothing is copied, most of it may be unused."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 8, 2176


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH))
