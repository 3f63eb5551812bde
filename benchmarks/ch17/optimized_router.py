"""One argmax and one stable sort: the slot of a token is its position in its expert's group. The host reads nothing."""

import torch

SLACK = 1.25


def run(logits):
    tokens, experts = logits.shape
    chosen = logits.argmax(dim=1)
    order = chosen.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=logits.device)
    counts.scatter_add_(0, chosen, torch.ones_like(chosen))
    begin = counts.cumsum(0) - counts
    slot = torch.empty_like(chosen)
    slot[order] = torch.arange(tokens, device=logits.device) - begin[chosen[order]]
    return {"expert": chosen, "slot": slot.where(slot < int(SLACK * tokens / experts), -1)}
