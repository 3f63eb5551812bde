"""FSDP by hand: a layer's gather runs during the previous layer, and its gradients leave while backward goes on."""

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm

RATE = 0.1


def run(x, y, weights):
    ranks, leaving = dist.get_world_size(), []

    def gather(shard):
        whole = shard.new_empty(ranks * shard.shape[0], shard.shape[1])
        return dist.all_gather_into_tensor(whole, shard, async_op=True), whole

    def leave(whole):
        own = whole.new_empty(whole.shape[0] // ranks, whole.shape[1])
        leaving.append((dist.reduce_scatter_tensor(own, whole.grad, async_op=True), own, whole.grad))
        whole.grad = None

    coming = gather(weights[0])
    for shard in [*weights[1:], None]:
        (work, whole), coming = coming, None if shard is None else gather(shard)
        work.wait()
        whole.requires_grad_().register_post_accumulate_grad_hook(leave)
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ whole)
    ((x - y).square().sum() / x.shape[0]).backward()
    stepped = torch.empty_like(weights)
    for new, shard, (work, own, _) in zip(stepped, weights, reversed(leaving), strict=True):
        work.wait()
        torch.add(shard, own, alpha=-RATE / ranks, out=new)
    return stepped
