"""Still text, parsed by numpy's loadtxt in C."""

import numpy as np
import torch


def run(text, binary, factor):
    table = torch.from_numpy(np.loadtxt(text, delimiter=",", dtype=np.float32, ndmin=2))
    return table.to(factor.device) * factor
