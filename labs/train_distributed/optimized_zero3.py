"""ZeRO stage 3: a layer is gathered before each use and dropped after it; Adam takes its shard within backward."""

import torch
import torch.distributed as dist
from _common import gathered
from torch.nn.functional import layer_norm

RATE, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-6


class Product(torch.autograd.Function):
    """x @ the rows of all ranks, of which only this rank's own are kept for backward."""

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ gathered(shard)

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        back, own = grad @ gathered(shard).mT, torch.empty_like(shard)
        dist.reduce_scatter_tensor(own, x.mT @ grad)
        return back, own


def run(x, y, weights, first, second):
    new = {"weights": weights.clone(), "first": first.clone(), "second": second.clone()}

    def stepping(layer):
        def step(shard):
            own, shard.grad = shard.grad.div_(dist.get_world_size()), None
            mean, spread = new["first"][layer].lerp_(own, 1 - BETA1), new["second"][layer]
            spread.lerp_(own.square_(), 1 - BETA2)
            new["weights"][layer].addcdiv_(mean, spread.sqrt().add_(EPS), value=-RATE)

        return step

    for layer, shard in enumerate(weights):
        own = shard.detach().requires_grad_()
        own.register_post_accumulate_grad_hook(stepping(layer))
        x = x + torch.relu(Product.apply(layer_norm(x, x.shape[1:]), own))
    ((x - y).square().sum() / x.shape[0]).backward()
    return new
