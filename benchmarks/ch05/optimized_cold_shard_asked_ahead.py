"""Records still in shuffled order, after posix_fadvise(WILLNEED) for the whole file: the disk reads ahead of them."""

import os

import torch


def run(path, order, factor):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
    block = os.fstat(fd).st_size // len(order)
    parts = [os.pread(fd, block, number * block) for number in order.tolist()]
    os.close(fd)
    values = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.float32).view(len(parts), -1)
    return values.to(factor.device) * factor
