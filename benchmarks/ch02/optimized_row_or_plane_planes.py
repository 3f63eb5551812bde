"""Planes first, then one contiguous sum each: one strided pass instead of sixteen, and a copy more."""

import torch


def run(image):
    planes = image.t().contiguous()
    return torch.stack([plane.sum() for plane in planes])
