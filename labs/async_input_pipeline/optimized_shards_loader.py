"""A DataLoader with two persistent workers: processes that read and convert, and hand batches over by shared memory."""

import os

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Images by (path, number, side)."""

    def __getitem__(self, wanted):
        path, number, side = wanted
        image = torch.empty(3, side, side, dtype=torch.uint8)
        with open(path, "rb", buffering=0) as file:
            os.preadv(file.fileno(), [image.numpy()], number * image.nbytes)
        return image


class Order:
    """Samples of a call by number; workers outlive it, so the path comes with every number."""

    wanted = ()

    def __iter__(self):
        return iter(self.wanted)

    def __len__(self):
        return len(self.wanted)


def prepare(params, example):
    order = Order()
    loader = DataLoader(Images(), batch_size=16, sampler=order, num_workers=2, persistent_workers=True)
    state = {"loader": loader, "wanted": order}
    return {"factor": 1 / (255 * params["scale"]), "offset": -params["mean"] / params["scale"], **state}


def run(path, order, factor, offset, loader, wanted):
    side = int((os.stat(path).st_size // len(order) // 3) ** 0.5)
    wanted.wanted = [(path, number, side) for number in order.tolist()]
    return torch.cat([images.to(factor.device).float().mul_(factor).add_(offset) for images in loader])
