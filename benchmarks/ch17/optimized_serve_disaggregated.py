"""A process for prompts beside one that decodes: keys and values lie in memory that both have; nothing is copied."""

from _common import LENGTH, SLOTS, SharedCache, serve_apart, start


def prepare(params, example):
    cache = SharedCache(params, SLOTS, LENGTH)
    return {"cache": cache, "prefill": start(cache)}


def serve(requests, emit, cache, prefill):
    serve_apart(requests, emit, cache, prefill)
