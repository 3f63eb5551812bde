"""One list of objects: still pickled, but two collectives for all tensors instead of two for each."""

import torch
import torch.distributed as dist


def run(state):
    box = [one.clone() if dist.get_rank() == 0 else None for one in state]
    dist.broadcast_object_list(box, src=0)
    return torch.stack([one.to(state.device) for one in box])
