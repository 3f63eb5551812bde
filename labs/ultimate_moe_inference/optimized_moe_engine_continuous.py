"""Continuous batching; every expert still computes every token."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 8, 576


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH))
