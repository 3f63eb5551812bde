"""Still one file per sample, each read straight into its row of the batch: as many opens, no copies."""

import os

import torch


def run(folder, shard, factor):
    names = sorted(os.listdir(folder))
    batch = torch.empty(len(names), len(factor))
    for name, row in zip(names, batch.numpy(), strict=True):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.readv(fd, [row])
        os.close(fd)
    return batch.to(factor.device) * factor
