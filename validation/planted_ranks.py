"""Programs on two GPUs: two ranks over NCCL, of which the first is recorded and starts the other, or one process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from planted_register import Step, bf16, healthy, planted, products

_SCRIPT = Path(__file__).with_name("planted_programs.py")


def _join() -> int:
    """This process's rank in a group of two."""
    if "RANK" not in os.environ:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        subprocess.Popen([sys.executable, str(_SCRIPT), sys.argv[1]], env={**os.environ, "RANK": "1"})
        os.environ["RANK"] = "0"
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    return rank


@planted("exposed_communication", gpus=2)
def gradients_reduced_after_backward() -> Step:
    """Gradients of 512 MiB are reduced when all of the computation has ended."""
    _join()
    run, gradients = products(10), [bf16(64 << 20) for _ in range(4)]

    def step() -> None:
        run()
        for gradient in gradients:
            dist.all_reduce(gradient)

    return step


@planted("small_messages", gpus=2)
def a_reduction_per_tensor() -> Step:
    """Eighty tensors of 4 KiB are reduced one by one."""
    _join()
    run, tensors = products(20), [bf16(2048) for _ in range(80)]

    def step() -> None:
        run()
        for tensor in tensors:
            dist.all_reduce(tensor)

    return step


@planted("collective_skew", gpus=2, steps=8)
def other_rank_late_in_every_second_step() -> Step:
    """In every second step the other rank computes four times as long, and this one waits for it in the reduction."""
    rank = _join()
    run, gradient, number = products(10), bf16(32 << 20), iter(range(1000))

    def step() -> None:
        for _ in range(4 if rank == 1 and next(number) % 2 else 1):
            run()
        dist.all_reduce(gradient)

    return step


@planted("device_imbalance", gpus=2)
def unequal_stages() -> Step:
    """A pipeline of two stages, of which the first computes four times as long as the second."""
    first, received = products(20), torch.empty(4096, 4096, device="cuda:1", dtype=torch.bfloat16)
    with torch.cuda.device(1):
        second = products(5)

    def step() -> None:
        received.copy_(first(), non_blocking=True)
        with torch.cuda.device(1):
            second()

    return step


@healthy(gpus=2)
def reductions_under_compute() -> Step:
    """Each bucket of gradients is reduced while the next one is computed."""
    _join()
    run, buckets = products(15), [bf16(16 << 20) for _ in range(4)]

    def step() -> None:
        works = []
        for bucket in buckets:
            works.append(dist.all_reduce(bucket, async_op=True))
            run()
        for work in works:
            work.wait()

    return step


@healthy(gpus=2)
def equal_stages() -> Step:
    """A pipeline of two stages that compute equally long, on different batches."""
    first, received = products(20), torch.empty(4096, 4096, device="cuda:1", dtype=torch.bfloat16)
    with torch.cuda.device(1):
        second = products(20)

    def step() -> None:
        with torch.cuda.device(1):
            second()
        received.copy_(first(), non_blocking=True)

    return step
