"""A router in Python: the best expert of each token is read one by one, and slots are counted in a list."""

import torch

from aisp_mcp.bench import Benchmark, Work

SLACK = 1.25


class Router(Benchmark):
    tokens, experts = 1024, 64
    sizes = {"large": {"tokens": 8192, "experts": 128}}

    def inputs(self, rng):
        return {"logits": rng.randn(self.tokens, self.experts)}

    def work(self):
        return Work(flops=self.tokens * self.experts, bytes=self.tokens * (4 * self.experts + 2 * 8), items=self.tokens)

    def run(self, logits):
        """Each token's expert and its slot there, in order of arrival; -1 where the expert is full."""
        capacity = int(SLACK * logits.shape[0] / logits.shape[1])
        taken, chosen, slots = [0] * logits.shape[1], [], []
        for token in logits:
            expert = token.argmax().item()
            chosen.append(expert)
            slots.append(taken[expert] if taken[expert] < capacity else -1)
            taken[expert] += 1
        return {
            "expert": torch.tensor(chosen, device=logits.device),
            "slot": torch.tensor(slots, device=logits.device),
        }
