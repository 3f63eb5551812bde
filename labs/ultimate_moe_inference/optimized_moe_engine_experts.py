"""Static batches; each expert computes the tokens that chose it, and no others."""

from _common import chosen_only

from aisp_mcp.bench.decoder import SlotCache, serve_in_batches

SLOTS, LENGTH = 8, 576


def serve(requests, emit, **weights):
    serve_in_batches(requests, emit, SlotCache(weights, SLOTS, LENGTH, chosen_only))
