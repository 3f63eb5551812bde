"""Step 1: continuous batching. A slot that is free takes the next request at once."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 8, 1152


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH))
