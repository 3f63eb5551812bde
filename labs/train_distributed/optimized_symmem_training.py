"""The bucket in symmetric memory: one kernel on each device reads the parts of all others over NVLink and sums them."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch.nn.functional import layer_norm

RATE = 0.1


def prepare(params, example):
    weights = params["weights"]
    bucket = symm_mem.empty(weights.shape, dtype=weights.dtype, device=weights.device)
    group = dist.group.WORLD.group_name
    symm_mem.rendezvous(bucket, group)
    return {"weights": weights, "bucket": bucket, "group": group}


def run(x, y, weights, bucket, group):
    weights = weights.detach().requires_grad_()
    weights.grad = bucket.zero_()
    for weight in weights:
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ weight)
    ((x - y).square().sum() / x.shape[0]).backward()
    summed = torch.ops.symm_mem.one_shot_all_reduce(bucket, "sum", group)
    return torch.add(weights.detach(), summed, alpha=-RATE / dist.get_world_size())
