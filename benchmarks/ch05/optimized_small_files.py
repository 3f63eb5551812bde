"""One shard with all samples: one open and one read instead of one per sample."""

import torch


def run(folder, shard, factor):
    with open(shard, "rb", buffering=0) as file:
        samples = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return samples.view(-1, len(factor)).to(factor.device) * factor
