"""Front to back in one read, and put in order in memory: the kernel asks the disk for long stretches."""

import torch


def run(path, order, factor):
    with open(path, "rb", buffering=0) as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32).view(len(order), -1)
    return values.to(factor.device)[order] * factor
