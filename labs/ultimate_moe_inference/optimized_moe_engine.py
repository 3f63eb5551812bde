"""Continuous batching, and each expert computes the tokens that chose it, and no others."""

from collections import deque

import torch

from aisp_mcp.decoder import Decoder, SlotCache, gated

SLOTS, LENGTH = 8, 576


def chosen_only(x, up, down, router):
    """Each expert computes its own tokens: rows sorted by expert, one product per expert that has any."""
    decoder = Decoder(experts=router.shape[-1])
    shares, experts = decoder.route(x, router)
    flat, order = x.reshape(-1, x.shape[-1]), experts.reshape(-1).argsort()
    rows, sizes = order // decoder.chosen, experts.reshape(-1).bincount(minlength=decoder.experts).tolist()
    out, begin = torch.zeros_like(flat), 0
    for expert, size in enumerate(sizes):
        if size:
            mine = order[begin : begin + size]
            part = gated(flat[rows[begin : begin + size]], up[expert], down[expert])
            out.index_add_(0, rows[begin : begin + size], part * shares.reshape(-1)[mine, None])
            begin += size
    return out.view_as(x)


class Sequence:
    """A running request. place: position of its last token; left: tokens still to come."""

    def __init__(self, request, slot, token):
        self.id, self.slot, self.token = request.id, slot, token
        self.place, self.left = len(request.prompt), request.tokens - 1


def serve(requests, emit, **weights):
    cache, waiting, running, free = SlotCache(weights, SLOTS, LENGTH), deque(), [], [*range(SLOTS)]
    while True:
        waiting += requests.poll() if waiting or running else requests.wait()
        if not waiting and not running:
            return
        while waiting and free:
            one, slot = waiting.popleft(), free.pop()
            running.append(Sequence(one, slot, cache.advance([slot], [0], [one.prompt], chosen_only)[0, -1].item()))
            emit(one.id, running[-1].token)
        if batch := [one for one in running if one.left]:
            slots, places = [one.slot for one in batch], [one.place for one in batch]
            tokens = cache.advance(slots, places, [[one.token] for one in batch], chosen_only)[:, 0].tolist()
            for one, token in zip(batch, tokens, strict=True):
                one.token, one.place, one.left = token, one.place + 1, one.left - 1
                emit(one.id, token)
        free += [one.slot for one in running if not one.left]
        running = [one for one in running if one.left]
