"""A tokeniser's table of character classes, made when the file is loaded: a pattern is tried on every code point."""

import re

import torch

from aisp_mcp.bench import Benchmark, Work

CLASSES = [re.compile(pattern) for pattern in (r"\s", r"\d", r"\w")]
CODE_POINTS = 1 << 17


def character_class(code):
    """Index of the first pattern that a character matches, or their number."""
    character = chr(code)
    return next((index for index, pattern in enumerate(CLASSES) if pattern.match(character)), len(CLASSES))


TABLE = torch.tensor([character_class(code) for code in range(CODE_POINTS)])


class StartTable(Benchmark):
    goal = "cold"
    length = 1 << 16

    def inputs(self, rng):
        return {"codes": rng.randint(0, 128, self.length)}

    def work(self):
        return Work(flops=self.length, bytes=16 * self.length, items=self.length)

    def run(self, codes):
        return TABLE.to(codes.device)[codes]
