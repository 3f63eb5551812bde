"""Greedy decoding of a text that repeats itself, one token at a time, each by all layers of the large model."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work

CERTAIN = 1e3  # what a successor's logit is raised by, so that the greedy choice is clear in any precision


class SpeculativeDecode(Benchmark):
    steps, width, vocabulary, layers, dtype = 64, 8192, 8192, 12, "bfloat16"
    sizes = {
        "small": {"steps": 36, "width": 512, "vocabulary": 512, "layers": 12, "dtype": "float32"},
        "large": {"steps": 128, "layers": 16},
    }

    def params(self, rng):
        width, layers = self.width, (self.layers, self.width, self.width)
        return {
            "embedding": rng.randn(self.vocabulary, width, dtype=self.dtype),
            "weights": rng.randn(*layers, dtype=self.dtype) / math.sqrt(width),
            "positions": rng.randn(self.steps, width, dtype=self.dtype),
            "head": rng.randn(width, self.vocabulary, dtype=self.dtype) / math.sqrt(width),
        }

    def inputs(self, rng):
        """A text in which tokens recur after sixteen others, and what a draft knows: the next token for three of four.

        Random weights know nothing; these tables stand for what training gives, the computation for what it costs.
        """
        order = rng.permutation(self.vocabulary).view(-1, 16)
        successor = torch.empty_like(order).flatten()
        successor[order.flatten()] = order.roll(-1, dims=1).flatten()
        wrong = rng.bernoulli(0.25, self.vocabulary)
        guess = torch.where(wrong, (successor + 1) % self.vocabulary, successor)
        return {"successor": successor, "guess": guess}

    def work(self):
        weights = self.layers * self.width**2 + self.width * self.vocabulary
        return Work(
            flops=2 * self.steps * weights,
            bytes=weights * getattr(torch, self.dtype).itemsize + 16 * self.vocabulary + 16 * self.steps,
            items=self.steps,
        )

    def run(self, successor, guess, embedding, weights, positions, head):
        """Tokens from token zero on, one for each position, and the logit of each."""
        token, tokens, logits = torch.zeros(1, dtype=torch.int64, device=successor.device), [], []
        for position in positions:
            state = embedding[token] + position
            for weight in weights:
                state = torch.tanh(state @ weight)
            scores = state @ head
            raised = scores.scatter_add(1, successor[token][:, None], torch.full_like(scores[:, :1], CERTAIN))
            token = raised.argmax(dim=1)
            tokens.append(token)
            logits.append(scores[0, token])
        return {"tokens": torch.cat(tokens), "logits": torch.cat(logits)}
