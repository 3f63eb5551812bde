"""Elements that are wrong relative to their own size, although their errors are small beside those of larger ones."""

from __future__ import annotations

from typing import Any

from aisp_mcp.judge.verifier.checks.pieces import pieces

OCTAVES = 256  # from the largest element down; the last one contains all that are smaller


def count_lost(error: Any, own: Any, truth: Any, least: float, most: float) -> int:
    """Number of elements with an error of more than `least` times their size that is also more than `most` times what
    the baseline's errors are for elements of about that size: their root mean square in the same octave.

    error, own: magnitudes of the candidate's and of the baseline's errors. All three have the same shape.
    """
    import torch

    parts = list(pieces(*(values.flatten() for values in (error, own, truth))))
    suspects = [(part > size.abs() * least) & (size != 0) for part, _, size in parts]
    if not any(bool(part.any()) for part in suspects):
        return 0  # the usual case, at a tenth of the cost of sorting by octaves
    highest = torch.stack([_exponent(size).max() for *_, size in parts]).max()
    squares = truth.new_zeros(OCTAVES, dtype=torch.float64)
    count = torch.zeros_like(squares, dtype=torch.int64)
    for _, own_part, size in parts:
        octave = _octave(size, highest)
        squares += torch.bincount(octave, weights=own_part.square(), minlength=OCTAVES)
        count += torch.bincount(octave, minlength=OCTAVES)
    usual = (squares / count.clamp_(min=1)).sqrt_() * most
    lost = torch.zeros_like(count[0])
    for suspect, (error_part, _, size) in zip(suspects, parts, strict=True):
        lost += (error_part[suspect] > usual[_octave(size[suspect], highest)]).sum()
    return int(lost)


def _octave(values: Any, highest: Any) -> Any:
    """Of each element's size, counted from that of the largest one."""
    return (highest - _exponent(values)).clamp_(max=OCTAVES - 1)


def _exponent(values: Any) -> Any:
    """The exponent of each number, as float64 stores it."""
    import torch

    return values.double().view(torch.int64).bitwise_right_shift(52).bitwise_and_(0x7FF)
