"""Unit stride: reduce whole rows at once."""


def run(a):
    return a.sum(dim=1)
