"""The pool opened once, in prepare: the same tasks without starting threads."""

from concurrent.futures import ThreadPoolExecutor

import torch


def scaled(row):
    return (row - row.mean()) / (row.std() + 1)


def prepare(params, example):
    return {"pool": ThreadPoolExecutor(4)}


def run(x, pool):
    return torch.stack(list(pool.map(scaled, x)))
