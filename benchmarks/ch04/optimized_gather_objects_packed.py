"""One collective: labels and logits travel as bytes of one buffer."""

import torch
import torch.distributed as dist


def run(logits, labels):
    ranks, split = dist.get_world_size(), labels.numel() * labels.element_size()
    packed = torch.cat([labels.view(torch.uint8), logits.reshape(-1).view(torch.uint8)])
    whole = packed.new_empty(ranks * packed.numel())
    dist.all_gather_into_tensor(whole, packed)
    whole = whole.view(ranks, -1)
    return {
        "labels": whole[:, :split].reshape(-1).view(labels.dtype),
        "logits": whole[:, split:].reshape(-1).view(logits.dtype).view(-1, logits.shape[1]),
    }
