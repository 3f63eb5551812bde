"""Group tokens by expert with one boolean mask per expert; on a GPU every mask makes the host wait for its size."""

import torch

from aisp_mcp.bench import Benchmark, Work


class MoeRouting(Benchmark):
    tokens, hidden, experts, dtype = 16384, 1024, 64, "bfloat16"
    sizes = {
        "small": {"tokens": 2048, "hidden": 64, "dtype": "float32"},
        "large": {"tokens": 65536, "hidden": 2048, "experts": 128},
    }

    def inputs(self, rng):
        return {
            "x": rng.randn(self.tokens, self.hidden, dtype=self.dtype),
            "logits": rng.randn(self.tokens, self.experts, dtype="float32"),
        }

    def work(self):
        moved = 2 * self.tokens * self.hidden * getattr(torch, self.dtype).itemsize
        return Work(
            flops=self.tokens * (self.experts - 1),
            bytes=moved + 4 * self.tokens * self.experts + 8 * (self.tokens + self.experts),
            items=self.tokens,
        )

    def run(self, x, logits):
        """Tokens in expert order (stable; ties go to the first expert), where each came from, and counts per expert."""
        chosen = logits.argmax(dim=1)
        source = [(chosen == expert).nonzero().flatten() for expert in range(logits.shape[1])]
        grouped = [x[index] for index in source]
        counts = torch.tensor([len(index) for index in source], device=x.device)
        return {"tokens": torch.cat(grouped), "source": torch.cat(source), "counts": counts}
