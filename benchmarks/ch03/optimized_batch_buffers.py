"""A ring of two padded buffers, pinned where there is a GPU: nothing is allocated or cleared per batch."""

import torch


def prepare(params, example):
    rows, columns = example["batches"].shape[1], len(example["factor"])
    ring = torch.zeros(2, rows, columns, dtype=torch.uint8)
    return {"ring": ring.pin_memory() if example["factor"].is_cuda else ring}


def run(batches, factor, ring):
    sums = []
    for number, batch in enumerate(batches):
        room = ring[number % 2]
        if factor.is_cuda and number > 1:
            torch.cuda.current_stream().synchronize()  # the copy out of this buffer may be under way
        room[:, : batch.shape[1]] = batch
        sums.append(room.to(factor.device, non_blocking=True).to(factor.dtype) @ factor)
    return torch.stack(sums)
