"""Drafts are what followed the last two tokens earlier in the same text: free, but right only where text repeats."""

from aisp_mcp.bench.decoder import SlotCache

DRAFTED, LENGTH = 4, 400


def guess(tokens):
    """The tokens after the last earlier occurrence of the same two tokens."""
    for place in range(len(tokens) - 2, 1, -1):
        if tokens[place - 2 : place] == tokens[-2:]:
            return tokens[place : place + DRAFTED]
    return []


def serve(requests, emit, **weights):
    cache = SlotCache(weights, 1, LENGTH)
    while new := requests.wait():
        for one in new:
            tokens = [*one.prompt, cache.advance([0], [0], [one.prompt])[0, -1].item()]
            emit(one.id, tokens[-1])
            end = len(one.prompt) + one.tokens
            while len(tokens) < end:
                guesses = guess(tokens)
                best = cache.advance([0], [len(tokens) - 1], [[tokens[-1], *guesses]])[0].tolist()
                agreed = next((n for n, one_guess in enumerate(guesses) if one_guess != best[n]), len(guesses))
                for token in best[: min(agreed + 1, end - len(tokens))]:
                    tokens.append(token)
                    emit(one.id, token)
