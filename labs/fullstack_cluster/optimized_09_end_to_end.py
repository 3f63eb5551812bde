"""One bucket for all gradients, weights served where they were trained, and prefixes kept as running sums."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, layer_norm

RATE = 0.5
NAMES = ("embed", "mix", "head")


def run(data, prompts, **weights):
    ranks, like = dist.get_world_size(), [weights[name] for name in NAMES]
    flat, grads, losses = torch.cat([one.flatten() for one in like]), torch.empty(0), []
    for batch in data:
        named = views(flat, like)
        grads = torch.zeros_like(flat)
        for weight, grad in zip(named, views(grads, like), strict=True):
            weight.requires_grad_().grad = grad
        found = cross_entropy(scores(prefix(batch[:, :-1], named[0]), *named[1:]).flatten(0, 1), batch[:, 1:].flatten())
        found.backward()
        dist.all_reduce(grads)
        losses.append(found.detach())
        flat = torch.add(flat, grads, alpha=-RATE / ranks)
    embed, mix, head = views(flat, like)
    answers = scores(prefix(prompts, embed)[:, prompts.shape[1] // 2 :], mix, head)
    own = flat.chunk(ranks)[dist.get_rank()].clone()
    return {"losses": torch.stack(losses), "checkpoint": own, "answers": answers}


def views(flat, like):
    """The parts of a flat tensor in the shapes of these."""
    parts = flat.detach().split([one.numel() for one in like])
    return [part.view(one.shape) for part, one in zip(parts, like, strict=True)]


def prefix(tokens, embed):
    """The mean over each prefix."""
    return embed[tokens].cumsum(1) / torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]


def scores(mean, mix, head):
    return layer_norm(mean + torch.relu(mean @ mix), mean.shape[-1:]) @ head
