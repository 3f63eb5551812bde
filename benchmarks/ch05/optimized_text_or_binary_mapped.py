"""The stored values mapped into memory: the product reads them from the page cache, without a copy in between."""

import torch


def run(text, binary, factor):
    with open(binary, "rb") as file:
        values = file.seek(0, 2) // 4
    return torch.from_file(binary, size=values).view(-1, len(factor)).to(factor.device) * factor
