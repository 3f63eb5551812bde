"""Eight micro-batches: both stages work at once but for the first and the last of nine steps."""

import torch
import torch.distributed as dist

PARTS = 8


def prepare(params, example):
    """Tell all ranks the batch's rows, which only the first one sees."""
    rows = torch.tensor([example["x"].shape[0] if example else 0], device=params["w"].device)
    dist.broadcast(rows, 0)
    return {**params, "rows": int(rows)}


def run(w, rows, x=None):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    parts, sent = x.chunk(PARTS) if x is not None else w.new_empty(rows, w.shape[1]).chunk(PARTS), []
    whole = w.new_empty(rows, w.shape[2]) if rank == last else None
    for part, place in zip(parts, whole.chunk(PARTS) if rank == last else parts, strict=True):
        if rank:
            dist.recv(part, rank - 1)
        for layer in w:
            part = torch.relu(part @ layer)
        if rank == last:
            place.copy_(part)
        else:
            sent.append((part, dist.isend(part, rank + 1)))
    for _, work in sent:
        work.wait()
    return whole if rank == last else []
