"""Sequences padded to the longest one (pad_sequence in a collate function): padding is multiplied, too."""

import torch

from aisp_mcp.bench import Benchmark, Work


class PackedQueue(Benchmark):
    sequences, tokens, width, dtype = 512, 131072, 512, "bfloat16"
    sizes = {
        "small": {"sequences": 64, "tokens": 4096, "width": 128, "dtype": "float32"},
        "large": {"sequences": 2048, "tokens": 524288},
    }

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width, dtype=self.dtype)}

    def inputs(self, rng):
        """Tokens one sequence after the other, cut at random places."""
        cuts = rng.permutation(self.tokens - 1)[: self.sequences - 1].sort().values + 1
        ends = torch.cat([cuts, cuts.new_tensor([self.tokens])])
        lengths = ends.diff(prepend=ends.new_zeros(1))
        return {"x": rng.randn(self.tokens, self.width, dtype=self.dtype), "lengths": lengths}

    def work(self):
        elements = self.width**2 + (self.tokens + self.sequences) * self.width
        return Work(
            flops=2 * self.tokens * self.width**2,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.sequences,
            items=self.tokens,
        )

    def run(self, x, lengths, weight):
        """The sum over each sequence of a layer's outputs. A row of zeros gives zeros."""
        padded = torch.nn.utils.rnn.pad_sequence(x.split(lengths.tolist()), batch_first=True)
        return torch.relu(padded @ weight).sum(dim=1)

    def reference(self, x, lengths, weight):
        """One sequence after the other: in float64 the padded batch is 3 GiB at the default size, three times."""
        return torch.stack([torch.relu(one @ weight).sum(dim=0) for one in x.split(lengths.tolist())])
