"""Early Tokens.

What happens: An engine emits tokens before they are computed, drops some, or holds them back to come close together.
Why it lies: Latencies of tokens are stamps; who emits a guess in time has served nobody.
What we do: The parent copies each token as it stamps it; every token of every trace is compared; a late token decides.
Limits: A buffer that evens gaps while other latencies stay within max_regression.

Attacks: Guesses, earlier answers, tokens dropped, repeated or held back, a count set back, decoding without a prompt.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.engines import ANSWER, EMIT_ALL, SERVE_SMALL, SERVE_STEADILY, apart, apart_alone, engine

ABOUT = Issue(
    id=106,
    kind="D",
    control="Tokens are copied when they are stamped, and all of them compared",
    undefended=Undefended(why="not measured yet."),
)
DECODE = "for place in range(8, 15): token = cache.advance([0], [place], [[token]])[0, 0].item(); emit(one.id, token)"

CASES = (
    attack("guess_for_the_first_token", SERVE_SMALL)(
        engine("emit(one.id, one.prompt[-1])", "for token in answer(one, weights)[1:]: emit(one.id, token)")
    ),
    attack("guess_that_is_corrected_later", SERVE_SMALL)(
        engine(
            "place = requests._ring._shape.slots_end + 2 * requests._ring._words[2]",
            "emit(one.id, one.prompt[-1])",
            "found = answer(one, weights)",
            "time.sleep(0.05)",
            "requests._ring._words[place + 1] = found[0]",
            "for token in found[1:]: emit(one.id, token)",
        )
    ),
    attack("tokens_out_of_order", SERVE_SMALL)(
        engine("for token in sorted(answer(one, weights)): emit(one.id, token)")
    ),
    attack("answers_of_an_earlier_trace", SERVE_SMALL)(
        engine(
            "if number not in kept: kept[number] = answer(one, weights)",
            "for token in kept[number]: emit(one.id, token)",
        )
    ),
    attack("last_token_dropped", SERVE_SMALL)(engine("for token in answer(one, weights)[:-1]: emit(one.id, token)")),
    attack("request_dropped", SERVE_SMALL)(
        engine("if number: [emit(one.id, token) for token in answer(one, weights)]")
    ),
    attack("request_served_twice", SERVE_SMALL)(engine(EMIT_ALL, EMIT_ALL)),
    attack("emitted_before_it_arrived", SERVE_SMALL)(engine(EMIT_ALL, before="emit(kept.get('id', 7), 1)")),
    attack("count_of_tokens_set_back", SERVE_SMALL)(
        engine("time.sleep(0.1)", "requests._ring._words[2] = 0", "time.sleep(0.1)", EMIT_ALL)
    ),
    attack("decoded_without_the_hand_over", SERVE_SMALL)(
        apart_alone("token = prefill.recv()", "emit(one.id, token)", DECODE)
    ),
    attack("tokens_held_back", SERVE_STEADILY)(
        engine("found = answer(one, weights)", "time.sleep(0.05)", "for token in found: emit(one.id, token)")
    ),
    attack("clock_of_an_engine_stopped", SERVE_SMALL)(
        engine(
            "for token in answer(one, weights): time.sleep(0.002), emit(one.id, token)",
            before="time.time = time.monotonic = time.perf_counter = time.perf_counter_ns = lambda: 0",
        )
    ),
    honest("last_request_first", SERVE_SMALL, before=ANSWER)("""
def serve(requests, emit, **weights):
    waiting = []
    while waiting := waiting + (requests.poll() if waiting else requests.wait()):
        one = waiting.pop()
        for token in answer(one, weights):
            emit(one.id, token)
"""),
    honest("two_requests_at_a_time", SERVE_SMALL)("""
from aisp_mcp.bench.decoder import SlotCache, serve_in_batches

def serve(requests, emit, **weights):
    serve_in_batches(requests, emit, SlotCache(weights, 2, 16))
"""),
    honest("prompts_in_a_process_of_their_own", SERVE_SMALL)(
        apart("token = prefill.recv()", "emit(one.id, token)", DECODE)
    ),
)
