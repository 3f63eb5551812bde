"""Two tensor collectives into preallocated results: shapes are known, so nothing needs to be pickled."""

import torch.distributed as dist


def run(logits, labels):
    return {"labels": gathered(labels), "logits": gathered(logits)}


def gathered(part):
    whole = part.new_empty((dist.get_world_size() * part.shape[0], *part.shape[1:]))
    dist.all_gather_into_tensor(whole, part.contiguous())
    return whole
