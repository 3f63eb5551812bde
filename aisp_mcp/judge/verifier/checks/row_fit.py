"""Gain and offset of rows and columns, for outputs of 16 bits, whose tolerance hides what a sample gets wrong.

A normalisation from a part of each row is off by a factor of its own in every row; a sum from a sample, by an offset.
Both may be smaller than what the tolerance of bfloat16 allows a single element. But rounding has a sign of its own in
each element and averages out over a row, and a wrong factor does not. So the part of the error that a gain and an
offset explain is bounded by a few roundings of one number: as many as a statistic in the narrow type goes through.
"""

from __future__ import annotations

from typing import Any

LEAST = 16  # elements of a row from which on rounding averages out
ROUNDINGS = 5.0  # half an eps each, of a row's root-mean-square value
OWN = 8.0  # times what gain and offset explain of the baseline's error
NOISE = 6.0  # standard errors of what independent errors explain by chance
SHARE = 0.05  # of the rows that may be beyond all this: sums that cancel


def is_tested(out: Any) -> bool:
    """True for the types whose tolerance needs this."""
    return bool(out.is_floating_point() and out.itemsize == 2 and out.ndim and out.shape[-1])


def beyond(error: Any, own: Any, truth: Any, half_eps: float) -> tuple[float, str]:
    """(rows or columns that are off as a whole, as a share of those that may be; a description of these).

    error, own: signed errors of the output and of the baseline; truth: what both should be. All have one shape.
    """
    most, words = 0.0, ""
    for name, (errors, owns, truths) in _views((error, own, truth)):
        limit = (ROUNDINGS * half_eps * _rms(truths)).maximum(OWN * _allowance(owns, truths))
        found = _explained(errors, truths)
        off = found > limit + _by_chance(errors, found)
        count = int(off.sum())
        if (share := count / (SHARE * len(found))) > most:
            worst = float((found / _rms(truths).clamp_min(1e-300)).where(off, 0.0).max())
            most, words = (
                share,
                f"{count} of {len(found)} {name} are off as a whole, by up to {worst:.2g} of their size, "
                "which rounding does not explain",
            )
    return most, words


def near(apart: Any, base: Any, half_eps: float) -> Any:
    """True, as a tensor, if gain and offset of the distance to the baseline settle that beyond() finds less than 1."""
    fits = None
    for _, (aparts, bases) in _views((apart, base)):
        good = (_explained(aparts, bases) > 0.5 * ROUNDINGS * half_eps * _rms(bases)).sum() <= SHARE * len(bases)
        fits = good if fits is None else fits & good
    return fits if fits is not None else apart.new_ones((), dtype=bool)


def _views(tensors: tuple[Any, ...]) -> list[tuple[str, list[Any]]]:
    """The tensors as rows of the last dimension, and as the columns across these, where there are enough elements."""
    width = tensors[0].shape[-1]
    matrices = [matrix.reshape(-1, width) for matrix in tensors]
    views = [("rows", matrices)] if width >= LEAST else []
    if len(matrices[0]) >= LEAST:
        views.append(("columns", [matrix.mT for matrix in matrices]))
    return views


def _explained(errors: Any, truths: Any) -> Any:
    """Root-mean-square of the part of each row's errors that a gain and an offset explain."""
    offset = errors.mean(1)
    centred = truths - truths.mean(1, keepdim=True)
    spread = _rms(centred).clamp_min(1e-300 if errors.itemsize == 8 else 1e-30)
    gain = (errors * centred).mean(1) / spread
    return (offset.square() + gain.square()).sqrt_()


def _allowance(owns: Any, truths: Any) -> Any:
    """What gain and offset explain of the baseline's error in each row, or in most rows of that size."""
    explained, sizes = _explained(owns, truths), _rms(truths)
    usual = _rms((explained / sizes.clamp_min(1e-300)).unsqueeze(0))
    return explained.maximum(usual * sizes)


def _by_chance(errors: Any, explained: Any) -> Any:
    """What independent errors of the size of the unexplained ones would explain."""
    rest = (errors.square().mean(1) - explained.square()).clamp_min_(0.0).sqrt_()
    return NOISE * rest / errors.shape[1] ** 0.5


def _rms(rows: Any) -> Any:
    return rows.square().mean(1).sqrt_()
