"""One Triton program per request and head that walks the request's table: pages are read once, in place."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def attend(q, keys, values, tables, out, pages, scale, heads: tl.constexpr, width: tl.constexpr, page: tl.constexpr):
    request, head, lane = tl.program_id(0), tl.program_id(1), tl.arange(0, width)
    own = (request * heads + head) * width + lane
    query = tl.load(q + own).to(tl.float32) * scale
    inside = (tl.arange(0, page) * heads + head)[:, None] * width + lane[None, :]
    mixed = tl.zeros((width,), tl.float32)
    peak, total = -float("inf"), 0.0
    for number in range(0, pages):
        offset = tl.load(tables + request * pages + number) * (page * heads * width) + inside
        scores = tl.sum(tl.load(keys + offset).to(tl.float32) * query[None, :], axis=1)
        higher = tl.maximum(peak, tl.max(scores, axis=0))
        weights, shrink = tl.exp(scores - higher), tl.exp(peak - higher)
        mixed = mixed * shrink + tl.sum(weights[:, None] * tl.load(values + offset).to(tl.float32), axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        peak = higher
    tl.store(out + own, mixed / total)


def run(keys, values, tables, q):
    requests, heads, width = q.shape
    out = torch.empty_like(q)
    sizes = {"heads": heads, "width": width, "page": keys.shape[1]}
    attend[(requests, heads)](q, keys, values, tables, out, tables.shape[1], 1 / math.sqrt(width), **sizes)
    return out
