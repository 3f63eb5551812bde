"""The blocks in the old order, behind posix_fadvise(WILLNEED) for the whole file: one request to the disk."""

import os

import torch

BLOCK = 16384


def run(path, factor):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
    numbers = reversed(range(os.fstat(fd).st_size // BLOCK))
    parts = [os.pread(fd, BLOCK, number * BLOCK) for number in numbers]
    os.close(fd)
    values = torch.frombuffer(bytearray(b"".join(reversed(parts))), dtype=torch.float32)
    return values.to(factor.device) * factor
