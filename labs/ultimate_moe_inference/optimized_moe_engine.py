"""Continuous batching, and each expert computes the tokens that chose it, and no others."""

from _common import chosen_only

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

SLOTS, LENGTH = 8, 576


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, SLOTS, LENGTH, chosen_only))
