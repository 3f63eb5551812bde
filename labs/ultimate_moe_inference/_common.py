"""The mixture of experts of both candidates that compute no more than the router chose."""

import torch

from aisp_mcp.bench.decoder import Decoder, gated


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
