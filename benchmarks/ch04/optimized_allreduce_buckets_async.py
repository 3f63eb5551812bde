"""Still one collective per tensor, but all are started before the first is waited for: latencies overlap."""

import torch.distributed as dist


def run(grads):
    pending = [dist.all_reduce(grad, async_op=True) for grad in grads]
    for work in pending:
        work.wait()
    grads /= dist.get_world_size()
    return grads
