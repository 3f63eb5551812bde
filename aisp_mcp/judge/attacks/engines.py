"""A tiny serving benchmark, as source text: six requests for one layer, served one after the other."""

from __future__ import annotations

SERVE_SMALL = '''"""One request after the other."""

from aisp_mcp.bench import Arrival, LatencyGoal
from aisp_mcp.bench.decoder import Decoder, DecoderBenchmark, SlotCache, serve_continuously


class Small(DecoderBenchmark):
    goal = "latency"
    latency = LatencyGoal("ttft", 50)
    max_requests, max_prompt, max_tokens, vocabulary = 6, 8, 8, 64
    decoder = Decoder(layers=1, width=64, kv_heads=1, hidden=64, vocabulary=64)

    def trace(self, rng):
        prompts = [rng.randint(0, 64, 8).tolist() for _ in range(6)]
        return [Arrival(0.2 * number, prompt, 8) for number, prompt in enumerate(prompts)]

    def serve(self, requests, emit, **weights):
        serve_continuously(requests, emit, SlotCache(weights, 1, 16))
'''
SERVE_STEADILY = SERVE_SMALL.replace('"ttft", 50', '"tpot", 50')

# answer(one, weights): the tokens of a request, computed by an engine that cheats only in what it does with them.
ANSWER = """
import time
from aisp_mcp.bench.decoder import SlotCache

def answer(one, weights):
    cache = SlotCache(weights, 1, 16)
    found = [cache.prefill(0, one.prompt)]
    for place in range(8, 15):
        found.append(cache.advance([0], [place], [[found[-1]]])[0, 0].item())
    return found
"""
EMIT_ALL = "for token in answer(one, weights): emit(one.id, token)"

SHARED = "    cache.keys, cache.values = shared(cache.keys), shared(cache.values)\n"
# prefill: a connection to a process that computes prompts into the cache; slot 0 is the only one.
APART = f"""
import mmap, torch
from multiprocessing import Pipe, get_context
from aisp_mcp.bench.decoder import SlotCache

def shared(tensor):
    return torch.frombuffer(mmap.mmap(-1, tensor.nbytes), dtype=tensor.dtype).view(tensor.shape)

def fill(connection, cache):
    torch.set_num_threads(1)
    with torch.inference_mode():
        while True:
            connection.send(cache.prefill(0, connection.recv()))

def prepare(params, example):
    cache = SlotCache(params, 1, 16)
{SHARED}    here, there = Pipe()
    get_context("fork").Process(target=fill, args=(there, cache), daemon=True).start()
    return {{"cache": cache, "prefill": here}}

def serve(requests, emit, cache, prefill):
    while new := requests.wait():
        for one in new:
            prefill.send(one.prompt)
"""


def engine(*lines: str, before: str = "") -> str:
    """The source of an engine that runs these lines for each request `one`. before: once per trace."""
    body = "\n".join(f"            {line}" for line in lines)
    return f"""{ANSWER}
kept = {{}}

def serve(requests, emit, **weights):
    number = 0
    {before or "pass"}
    while new := requests.wait():
        for one in new:
{body}
            number += 1
"""


def apart(*lines: str) -> str:
    """The source of an engine of two processes that runs these lines once a request's prompt was sent away."""
    return APART + "\n".join(f"            {line}" for line in lines) + "\n"


def apart_alone(*lines: str) -> str:
    """The same, but keys and values stay in the process that computed them."""
    return apart(*lines).replace(SHARED, "")
