"""The file mapped into memory and indexed by the whole batch: one gather, no system call per record."""

import os

import torch


def run(path, order, factor):
    records = torch.from_file(path, size=os.stat(path).st_size // 4).view(-1, len(factor))
    return records.index_select(0, order.cpu()).to(factor.device).mul_(factor)
