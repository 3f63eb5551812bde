"""The all-reduce of a layer's gradient runs while the next one is computed, as hooks of a data-parallel module do."""

import torch
import torch.distributed as dist


def run(x, dy):
    grads, pending = x.new_empty(len(x), x.shape[2], dy.shape[2]), []
    for one, other, grad in zip(x, dy, grads, strict=True):
        torch.matmul(one.T, other, out=grad)
        pending.append(dist.all_reduce(grad, async_op=True))
    for work in pending:
        work.wait()
    return grads
