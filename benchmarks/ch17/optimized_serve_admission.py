"""Requests that are already too late wait until no other can still be in time; they are served, but last."""

import math
import time

from aisp_mcp.bench.decoder import SlotCache, admit, decode

SLOTS, LENGTH = 4, 320
TTFT = 8.0  # of prefills by themselves: the service level, and some room


def pick(waiting, limit_s):
    """The first request that can still be in time, else the first of all."""
    now = time.perf_counter()
    place = next((place for place, (came, _) in enumerate(waiting) if now - came < limit_s), 0)
    return waiting.pop(place)[1]


def serve(requests, emit, **weights):
    cache, waiting, running, shortest = SlotCache(weights, SLOTS, LENGTH), [], [], math.inf
    while True:
        new = requests.poll() if waiting or running else requests.wait()
        waiting += [(time.perf_counter(), one) for one in new]
        if not waiting and not running:
            return
        while waiting and cache.free:
            one, begin = pick(waiting, TTFT * shortest), time.perf_counter()
            running.append(admit(cache, one, emit))
            shortest = min(shortest, time.perf_counter() - begin)
        running = decode(cache, running, emit)
