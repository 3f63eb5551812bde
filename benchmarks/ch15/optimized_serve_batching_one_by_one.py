"""The other extreme: each request by itself, in the order of arrival. No request waits for another one's last token."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

LENGTH = 640


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, 1, LENGTH))
