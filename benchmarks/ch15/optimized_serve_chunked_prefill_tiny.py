"""Chunks of 8 tokens: so many steps for a prompt that requests wait for each other's prompts again."""

from _common import serve_in_chunks


def serve(requests, emit, **weights):
    serve_in_chunks(requests, emit, weights, chunk=8)
