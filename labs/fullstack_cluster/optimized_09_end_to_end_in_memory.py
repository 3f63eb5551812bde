"""Weights handed over in memory: ranks of data parallelism hold the same ones; training and serving as they were."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, layer_norm

RATE = 0.5
NAMES = ("embed", "mix", "head")


def run(data, prompts, **weights):
    ranks, length, losses = dist.get_world_size(), prompts.shape[1], []
    for batch in data:
        named = {name: weights[name].detach().requires_grad_() for name in NAMES}
        found = cross_entropy(logits(batch[:, :-1], **named).flatten(0, 1), batch[:, 1:].flatten())
        found.backward()
        for weight in named.values():
            dist.all_reduce(weight.grad)
        losses.append(found.detach())
        weights = {name: (one - RATE / ranks * one.grad).detach() for name, one in named.items()}
    answers = [logits(prompts[:, : end + 1], **weights)[:, -1] for end in range(length // 2, length)]
    flat = torch.cat([weights[name].flatten() for name in NAMES])
    own = flat.chunk(ranks)[dist.get_rank()].clone()
    return {"losses": torch.stack(losses), "checkpoint": own, "answers": torch.stack(answers, 1)}


def logits(tokens, embed, mix, head):
    count = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
    mean = embed[tokens].cumsum(1) / count
    return layer_norm(mean + torch.relu(mean @ mix), mean.shape[-1:]) @ head
