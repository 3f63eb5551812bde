"""The longest request first, as throughput alone would have it: nearly all requests wait for a few."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 2, 512


def most(waiting):
    return waiting.pop(max(range(len(waiting)), key=lambda place: waiting[place].tokens))


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH), most)
