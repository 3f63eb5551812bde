"""Data, training, checkpoint and serving on two ranks: one all-reduce per weight, a file in between, whole prefixes."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, layer_norm

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work

RATE = 0.5
NAMES = ("embed", "mix", "head")


class EndToEnd(DistributedBenchmark):
    steps, rows, length, width, vocabulary, requests = 8, 64, 256, 512, 4096, 32
    sizes = {
        "small": {"steps": 3, "rows": 16, "length": 48, "width": 64, "vocabulary": 128, "requests": 8},
        "large": {"steps": 16, "width": 2048, "vocabulary": 32768},
    }
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        weights = {
            "embed": rng.randn(self.vocabulary, self.width, scale=1.0),
            "mix": rng.randn(self.width, self.width, scale=0.05),
            "head": rng.randn(self.width, self.vocabulary, scale=0.05),
        }
        return [
            {
                "data": rng.randint(0, self.vocabulary, self.steps, self.rows, self.length + 1),
                "prompts": rng.randint(0, self.vocabulary, self.requests, self.length),
                **{name: weight.clone() for name, weight in weights.items()},
            }
            for _ in range(self.ranks)
        ]

    def work(self):
        tokens = self.ranks * (3 * self.steps * self.rows * self.length + self.requests * self.length)
        return Work(flops=2 * tokens * self.width * (self.width + self.vocabulary), items=tokens, unit="tokens")

    def run(self, data, prompts, **weights):
        losses, length = [], prompts.shape[1]
        for batch in data:
            named = {name: weights[name].detach().requires_grad_() for name in NAMES}
            found = loss(batch, **named)
            found.backward()
            for weight in named.values():
                dist.all_reduce(weight.grad)
            losses.append(found.detach())
            weights = {n: (w - RATE / dist.get_world_size() * w.grad).detach() for n, w in named.items()}
        weights = handed_over(weights)
        answers = [logits(prompts[:, : end + 1], **weights)[:, -1] for end in range(length // 2, length)]
        own = flat(weights).chunk(dist.get_world_size())[dist.get_rank()].clone()
        return {"losses": torch.stack(losses), "checkpoint": own, "answers": torch.stack(answers, 1)}

    def rank_reference(self, ranks):
        weights, losses = {name: ranks[0][name] for name in NAMES}, []
        for step in range(self.steps):
            named = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
            each = [loss(rank["data"][step], **named) for rank in ranks]
            sum(each).backward()
            losses.append(torch.stack(each).detach())
            weights = {n: (w - RATE / len(ranks) * w.grad).detach() for n, w in named.items()}
        parts = flat(weights).chunk(len(ranks))
        answers = [logits(rank["prompts"], **weights)[:, self.length // 2 :] for rank in ranks]
        return [
            {"losses": torch.stack(losses)[:, rank], "checkpoint": parts[rank], "answers": answers[rank]}
            for rank in range(len(ranks))
        ]


def logits(tokens, embed, mix, head):
    """Next-token scores (batch, length, vocabulary): a mean over each prefix, one residual layer, a head."""
    count = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)[:, None]
    mean = embed[tokens].cumsum(1) / count
    return layer_norm(mean + torch.relu(mean @ mix), mean.shape[-1:]) @ head


def loss(batch, **weights):
    return cross_entropy(logits(batch[:, :-1], **weights).flatten(0, 1), batch[:, 1:].flatten())


def flat(weights):
    return torch.cat([weights[name].flatten() for name in NAMES])


def handed_over(weights):
    """The weights that every rank reads from the file which rank 0 has written."""
    path = [None]
    if dist.get_rank() == 0:
        handle, path[0] = tempfile.mkstemp(suffix=".pt")
        os.close(handle)
        torch.save(weights, path[0])
    dist.broadcast_object_list(path)
    found = torch.load(path[0], map_location=weights["embed"].device)
    dist.barrier()
    if dist.get_rank() == 0:
        os.unlink(path[0])
    return found
