"""The same processes with memory of their own: keys and values of each prompt are sent, as between two machines."""

import torch
from _common import LENGTH, SLOTS, serve_apart, start

from aisp_mcp.bench.decoder import SlotCache


class SentCache(SlotCache):
    """Keys and values of a prompt as bytes on the way from one process to the other."""

    def hand_over(self, connection, slot, length):
        held = torch.stack((self.keys[:, slot, :, :length], self.values[:, slot, :, :length]))
        connection.send_bytes(held.flatten().view(torch.uint8).cpu().numpy())

    def take_over(self, connection, slot, length):
        raw = torch.frombuffer(bytearray(connection.recv_bytes()), dtype=self.keys.dtype)
        held = raw.view(2, len(self.keys), self.keys.shape[2], length, -1)
        self.keys[:, slot, :, :length], self.values[:, slot, :, :length] = held


def prepare(params, example):
    cache = SentCache(params, SLOTS, LENGTH)
    return {"cache": cache, "prefill": start(cache)}


def serve(requests, emit, cache, prefill):
    serve_apart(requests, emit, cache, prefill)
