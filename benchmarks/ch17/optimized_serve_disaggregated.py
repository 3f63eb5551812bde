"""One process for prompts and one that decodes: keys and values are in shared memory, and nothing is copied."""

from _common import LENGTH, SLOTS, SharedCache, serve_apart, start


def prepare(params, example):
    cache = SharedCache(params, SLOTS, LENGTH)
    return {"cache": cache, "prefill": start(cache)}


def serve(requests, emit, cache, prefill):
    serve_apart(requests, emit, cache, prefill)
