"""The first layer drafts four tokens, one pass of all layers checks them and adds one of its own."""

from aisp_mcp.bench.decoder import SlotCache

DRAFTED, LENGTH = 4, 400
STACKED = ("qkv", "out", "up", "down")


def serve(requests, emit, **weights):
    cache = SlotCache(weights, 1, LENGTH)
    first = {name: one[:1] if name in STACKED else one for name, one in weights.items()}
    draft = SlotCache(first, 1, LENGTH)
    while new := requests.wait():
        for one in new:
            tokens = [*one.prompt, cache.advance([0], [0], [one.prompt])[0, -1].item()]
            emit(one.id, tokens[-1])
            known, end = 0, len(one.prompt) + one.tokens  # known: tokens that the draft's cache has
            while len(tokens) < end:
                guesses = [draft.advance([0], [known], [tokens[known:]])[0, -1].item()]
                while len(guesses) < DRAFTED:
                    place = len(tokens) + len(guesses) - 1
                    guesses.append(draft.advance([0], [place], [guesses[-1:]])[0, 0].item())
                best = cache.advance([0], [len(tokens) - 1], [[tokens[-1], *guesses]])[0].tolist()
                agreed = next((n for n, guess in enumerate(guesses) if guess != best[n]), DRAFTED)
                known = len(tokens) + min(agreed, DRAFTED - 1)
                for token in best[: min(agreed + 1, end - len(tokens))]:
                    tokens.append(token)
                    emit(one.id, token)
