"""A small serving benchmark, honest engines, and engines that cheat, as text."""

from __future__ import annotations

SPECIFICATION = '''
"""One request after the other."""
from aisp_mcp.bench import Arrival, LatencyGoal, ServingBenchmark
from aisp_mcp.decoder import Decoder, SlotCache


class Small(ServingBenchmark):
    goal = "latency"
    latency = LatencyGoal("ttft", 50)
    max_requests, max_prompt, max_tokens, vocabulary = 6, 8, 8, 64
    decoder = Decoder(layers=1, width=64, kv_heads=1, hidden=64, vocabulary=64)

    def params(self, rng):
        return self.decoder.params(rng)

    def trace(self, rng):
        prompts = [rng.randint(0, 64, 8).tolist() for _ in range(6)]
        return [Arrival(0.2 * number, prompt, 8) for number, prompt in enumerate(prompts)]

    def logits(self, tokens, **weights):
        return self.decoder.logits(tokens, **weights)

    def serve(self, requests, emit, **weights):
        cache = SlotCache(weights, 1, 16)
        while new := requests.wait():
            for one in new:
                token = cache.advance([0], [0], [one.prompt])[0, -1].item()
                emit(one.id, token)
                for place in range(8, 15):
                    token = cache.advance([0], [place], [[token]])[0, 0].item()
                    emit(one.id, token)
'''

# answer(one, weights): the tokens of a request, computed by an engine that cheats only in what it does with them.
_ANSWER = """
import time
from aisp_mcp.decoder import SlotCache

def answer(one, weights):
    cache = SlotCache(weights, 1, 16)
    found = [cache.advance([0], [0], [one.prompt])[0, -1].item()]
    for place in range(8, 15):
        found.append(cache.advance([0], [place], [[found[-1]]])[0, 0].item())
    return found
"""


def engine(*lines: str, before: str = "") -> str:
    """The source of an engine that runs these lines for each request `one`. before: once per trace."""
    body = "\n".join(f"            {line}" for line in lines)
    return f"""{_ANSWER}
kept = {{}}

def serve(requests, emit, **weights):
    number = 0
    {before or "pass"}
    while new := requests.wait():
        for one in new:
{body}
            number += 1
"""


EMIT_ALL = "for token in answer(one, weights): emit(one.id, token)"

# name: (source, code of the flag that must end the comparison)
ATTACKS = {
    "guess_for_the_first_token": (
        engine(
            "emit(one.id, one.prompt[-1])",
            "for token in answer(one, weights)[1:]: emit(one.id, token)",
        ),
        "incorrect_token",
    ),
    "guess_that_is_corrected_later": (
        engine(
            "place = requests._ring._shape.slots_end + 2 * requests._ring._words[2]",
            "emit(one.id, one.prompt[-1])",
            "found = answer(one, weights)",
            "time.sleep(0.05)",
            "requests._ring._words[place + 1] = found[0]",
            "for token in found[1:]: emit(one.id, token)",
        ),
        "incorrect_token",
    ),
    "tokens_out_of_order": (
        engine("for token in sorted(answer(one, weights)): emit(one.id, token)"),
        "incorrect_token",
    ),
    "answers_of_an_earlier_trace": (
        engine(
            "if number not in kept: kept[number] = answer(one, weights)",
            "for token in kept[number]: emit(one.id, token)",
        ),
        "incorrect_token",
    ),
    "the_last_token_dropped": (
        engine("for token in answer(one, weights)[:-1]: emit(one.id, token)"),
        "incorrect_missing",
    ),
    "a_request_dropped": (
        engine("if number: [emit(one.id, token) for token in answer(one, weights)]"),
        "incorrect_missing",
    ),
    "a_request_served_twice": (
        engine(EMIT_ALL, EMIT_ALL),
        "incorrect_emission",
    ),
    "emitted_before_it_arrived": (
        engine(EMIT_ALL, before="emit(kept.get('id', 7), 1)"),
        "incorrect_emission",
    ),
    "counted_back": (
        engine("time.sleep(0.1)", "requests._ring._words[2] = 0", "time.sleep(0.1)", EMIT_ALL),
        "incorrect_emission",
    ),
}

# Engines that fulfil the contract in another way.
TWINS = {
    "the_last_one_first": _ANSWER
    + """
def serve(requests, emit, **weights):
    waiting = []
    while waiting := waiting + (requests.poll() if waiting else requests.wait()):
        one = waiting.pop()
        for token in answer(one, weights):
            emit(one.id, token)
""",
    "two_at_a_time": """
from aisp_mcp.decoder import SlotCache

def serve(requests, emit, **weights):
    cache, waiting = SlotCache(weights, 2, 16), []
    while waiting := waiting + (requests.poll() if waiting else requests.wait()):
        batch, waiting = waiting[:2], waiting[2:]
        slots = [*range(len(batch))]
        tokens = cache.advance(slots, [0] * len(batch), [one.prompt for one in batch])[:, -1].tolist()
        for place in range(8, 16):
            for one, token in zip(batch, tokens):
                emit(one.id, token)
            if place < 15:
                tokens = cache.advance(slots, [place] * len(batch), [[token] for token in tokens])[:, 0].tolist()
""",
}

HELD_BACK = engine(
    "found = answer(one, weights)",
    "time.sleep(0.05)",
    "for token in found: emit(one.id, token)",
)
OWN_CLOCK = engine(
    "for token in answer(one, weights): time.sleep(0.002), emit(one.id, token)",
    before="time.time = time.monotonic = time.perf_counter = time.perf_counter_ns = lambda: 0",
)
