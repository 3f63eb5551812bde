"""Two threads for two cores: reading and zlib both let go of the interpreter."""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import torch


def prepare(params, example):
    return {"pool": ThreadPoolExecutor(2)}


def unpacked(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(zlib.decompress(file.read())), dtype=torch.uint8)


def run(folder, offset, pool):
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return torch.stack(list(pool.map(unpacked, paths))).to(offset.device) + offset
