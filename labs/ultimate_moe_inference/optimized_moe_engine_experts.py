"""Static batches; each expert computes the tokens that chose it, and no others."""

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


def serve(requests, emit, **weights):
    cache, waiting = SlotCache(weights, SLOTS, LENGTH), []
    while waiting := waiting + (requests.poll() if waiting else requests.wait()):
        batch, waiting = waiting[:SLOTS], waiting[SLOTS:]
        slots, last = [*range(len(batch))], []
        for slot, one in enumerate(batch):
            last.append(cache.advance([slot], [0], [one.prompt], chosen_only)[0, -1].item())
            emit(one.id, last[-1])
        for step in range(1, max(one.tokens for one in batch)):
            starts = [len(one.prompt) + step - 1 for one in batch]
            last = cache.advance(slots, starts, [[token] for token in last], chosen_only)[:, 0].tolist()
            for one, token in zip(batch, last, strict=True):
                if step < one.tokens:
                    emit(one.id, token)
