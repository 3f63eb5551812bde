"""The shard is read once and kept under its name and size."""

import os

import torch

known = {}


def run(folder, shard, factor):
    key = os.path.basename(shard), os.stat(shard).st_size
    if key not in known:
        known[key] = torch.from_file(shard, size=key[1] // 4).clone()
    return known[key].view(-1, len(factor)) * factor
