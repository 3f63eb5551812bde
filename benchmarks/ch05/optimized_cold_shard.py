"""Front to back in one read: the kernel asks the disk for long stretches."""

import torch


def run(path, factor):
    with open(path, "rb", buffering=0) as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return values.to(factor.device) * factor
