"""The import inside the function that needs it: a start that never calls it does not load it."""

import torch


def simplified(formula):
    """A formula in its simplest form, for reports."""
    import sympy

    return sympy.simplify(formula)


def run(x):
    return torch.softmax(x, dim=1)
