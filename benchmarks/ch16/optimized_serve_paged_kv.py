"""Pages of 16 tokens, taken from one pool as a request grows and found through a table; attention gathers them."""

import torch
from torch.nn import functional

from aisp_mcp.bench.decoder import HEAD, SlotCache, serve_continuously

SLOTS, LENGTH, PAGE = 8, 2176, 16


class PagedCache(SlotCache):
    """Pages (layers, kv heads, page * PAGE, head) and the table of pages of each slot."""

    def __init__(self, weights, slots, length):
        super().__init__(weights, slots, 0)
        pages = slots * -(-length // PAGE)
        self.pages, self.tables = [*range(pages)], [[] for _ in range(slots)]
        shape = (self.decoder.layers, self.decoder.kv_heads, pages * PAGE, HEAD)
        self.keys, self.values = self.keys.new_zeros(shape), self.keys.new_zeros(shape)

    def release(self, slot):
        super().release(slot)
        self.pages += self.tables[slot]
        self.tables[slot] = []

    def at(self, slots, starts, count):
        longest = 0
        for slot, start in zip(slots.tolist(), starts.tolist(), strict=True):
            table = self.tables[slot]
            table += [self.pages.pop() for _ in range(-(-(start + count) // PAGE) - len(table))]
            longest = max(longest, len(table))
        rows = [self.tables[slot] for slot in slots.tolist()]
        table = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=starts.device)
        held = (table[:, :, None] * PAGE + torch.arange(PAGE, device=starts.device)).flatten(1)
        positions = starts[:, None] + torch.arange(count, device=starts.device)
        places = held.gather(1, positions)
        mask = torch.arange(held.shape[1], device=starts.device) <= positions[:, None, :, None]

        def attend(layer, q, k, v):
            keys, values = self.keys[layer], self.values[layer]
            keys[:, places], values[:, places] = k.transpose(0, 1), v.transpose(0, 1)
            found = keys[:, held].transpose(0, 1), values[:, held].transpose(0, 1)
            return functional.scaled_dot_product_attention(q, *found, attn_mask=mask, enable_gqa=True)

        return positions, attend


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, PagedCache(weights, SLOTS, LENGTH))
