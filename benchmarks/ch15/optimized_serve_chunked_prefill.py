"""Chunked prefill: a step takes 64 tokens of the prompt with the fewest left, then a token of every running request."""

from _common import serve_in_chunks


def serve(requests, emit, **weights):
    serve_in_chunks(requests, emit, weights, chunk=64)
