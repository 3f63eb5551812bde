"""Classes of the characters that occur, each looked up once per call: text has few of a hundred thousand."""

import re

import torch

CLASSES = [re.compile(pattern) for pattern in (r"\s", r"\d", r"\w")]


def character_class(code):
    """Index of the first pattern that a character matches, or their number."""
    character = chr(code)
    return next((index for index, pattern in enumerate(CLASSES) if pattern.match(character)), len(CLASSES))


def run(codes):
    found, places = torch.unique(codes, return_inverse=True)
    return torch.tensor([character_class(code) for code in found.tolist()], device=codes.device)[places]
