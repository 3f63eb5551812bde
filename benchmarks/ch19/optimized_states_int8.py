"""Moments as bytes with a scale for each row, widened for one parameter at a time; gradients leave as they are used."""

import torch
from torch import nn
from torch.nn import functional

RATE, DECAY, DECAY_SQUARE, EPSILON, WEIGHT_DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-2


def packed(values, kind, most):
    rows = values.view(len(values), -1)
    scale = rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / most
    return (rows / scale).round_().to(kind), scale


def widened(pair, shape):
    return (pair[0] * pair[1]).view(shape)


def prepare(params, example):
    count = sum(name.startswith("weight.") for name in example) // 2
    width = example["x"].shape[-1]
    layers = [nn.Sequential(nn.Linear(width, width, device="meta"), nn.Tanh()) for _ in range(count)]
    return {"network": nn.Sequential(*layers).to_empty(device=example["x"].device)}


def adamw(weight, gradient, first, second, step):
    """One parameter's step in place; returns its moments as bytes."""
    mean = widened(first, weight.shape).lerp_(gradient, 1 - DECAY)
    square = widened(second, weight.shape).mul_(DECAY_SQUARE).addcmul_(gradient, gradient, value=1 - DECAY_SQUARE)
    moments = packed(mean, torch.int8, 127), packed(square, torch.uint8, 255)
    weight.mul_(1 - RATE * WEIGHT_DECAY)
    scale = square.sqrt_().div_((1 - DECAY_SQUARE**step) ** 0.5).add_(EPSILON)
    weight.addcdiv_(mean, scale, value=-RATE / (1 - DECAY**step))
    return moments


def run(network, x, labels, step, **tensors):
    states, losses = {}, []
    for name, parameter in network.named_parameters():
        parameter.data, parameter.grad = tensors[f"weight.{name}"].clone(), None
        states[name] = (
            packed(tensors[f"exp_avg.{name}"], torch.int8, 127),
            packed(tensors[f"exp_avg_sq.{name}"], torch.uint8, 255),
        )
    for number, (one, wanted) in enumerate(zip(x, labels, strict=True), int(step) + 1):
        loss = functional.cross_entropy(network(one), wanted)
        loss.backward()
        losses.append(loss.detach())
        for name, parameter in network.named_parameters():
            gradient, parameter.grad = parameter.grad, None
            states[name] = adamw(parameter.data, gradient, *states[name], number)
    weights = {f"weight.{name}": parameter.detach() for name, parameter in network.named_parameters()}
    return {"loss": torch.stack(losses), **weights}
