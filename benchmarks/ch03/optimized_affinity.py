"""One worker per core, bound with sched_setaffinity: caches stay warm where the scheduler would move threads."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import torch


def reduced(part):
    total = part
    for _ in range(8):
        total = torch.tanh(total + part)
    return total


def prepare(params, example):
    cores, number = sorted(os.sched_getaffinity(0)), count()
    pool = ThreadPoolExecutor(2, initializer=lambda: os.sched_setaffinity(0, {cores[next(number) % len(cores)]}))
    list(pool.map(reduced, [example["x"][0]] * 4))
    return {"pool": pool}


def run(x, pool):
    return torch.stack(list(pool.map(reduced, x)))
