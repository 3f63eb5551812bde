"""The request that needs the fewest tokens first: short ones keep no other waiting for long."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 2, 512


def fewest(waiting):
    return waiting.pop(min(range(len(waiting)), key=lambda place: waiting[place].tokens))


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH), fewest)
