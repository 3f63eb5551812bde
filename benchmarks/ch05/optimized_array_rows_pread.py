"""One positioned read per needed row, after a look at the header: no mapping, no page faults."""

import os

import numpy as np
import torch


def run(path, wanted, factor):
    with open(path, "rb", buffering=0) as file:
        np.lib.format.read_magic(file)
        (_, columns), _, dtype = np.lib.format.read_array_header_1_0(file)
        rows, start = np.empty((len(wanted), columns), dtype), file.tell()
        for row, number in zip(rows, wanted.tolist(), strict=True):
            os.preadv(file.fileno(), [row], start + number * row.nbytes)
    return torch.from_numpy(rows).to(factor.device) * factor
