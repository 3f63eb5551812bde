"""Batches in the order of arrival, each padded to its longest request: short requests wait for long ones."""

import torch

from aisp_mcp.bench import Benchmark, Work


class BucketedLengths(Benchmark):
    requests, tokens, width, dtype = 1024, 262144, 1024, "bfloat16"
    sizes = {
        "small": {"requests": 128, "tokens": 8192, "width": 96, "dtype": "float32"},
        "large": {"requests": 4096, "tokens": 1 << 20},
    }

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width, dtype=self.dtype)}

    def inputs(self, rng):
        """Tokens one request after the other, cut at random places."""
        cuts = rng.permutation(self.tokens - 1)[: self.requests - 1].sort().values + 1
        ends = torch.cat([cuts, cuts.new_tensor([self.tokens])])
        lengths = ends.diff(prepend=ends.new_zeros(1))
        return {"x": rng.randn(self.tokens, self.width, dtype=self.dtype), "lengths": lengths}

    def work(self):
        elements = self.width**2 + (self.tokens + self.requests) * self.width
        return Work(
            flops=2 * self.tokens * self.width**2,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.requests,
            items=self.tokens,
        )

    def run(self, x, lengths, weight):
        """The sum of a layer's outputs over the tokens of each request, sixteen requests at a time."""
        requests, sums = x.split(lengths.tolist()), []
        for first in range(0, len(requests), 16):
            batch = torch.nn.utils.rnn.pad_sequence(requests[first : first + 16], batch_first=True)
            sums.append(torch.relu(batch @ weight).sum(dim=1))
        return torch.cat(sums)
