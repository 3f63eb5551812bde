"""Gain and offset errors of rows and columns. They are tested for 16-bit outputs, whose tolerance hides errors of
sampled statistics.

A normalisation that uses part of each row is off by a different factor in every row; a sum over a sample, by an offset.
Both may be smaller than the bfloat16 tolerance of a single element. But rounding errors have independent signs and
average out over a row, and a wrong factor does not. So the part of the error that a gain and an offset explain is
limited to a few roundings of one number: as many as computing a statistic in the narrow type involves.
"""

from __future__ import annotations

from typing import Any

LEAST = 16  # elements per row; rounding averages out from here on
ROUNDINGS = 5.0  # half an eps each, relative to the row's root-mean-square value
OWN = 8.0  # times the part of the baseline's error that gain and offset explain
NOISE = 6.0  # standard errors of the part that independent errors explain by chance
SHARE = 0.05  # of the rows may exceed all of these: sums that cancel


def is_tested(out: Any) -> bool:
    """Return True for types whose tolerance makes this test necessary."""
    return bool(out.is_floating_point() and out.itemsize == 2 and out.ndim and out.shape[-1])


def beyond(error: Any, own: Any, truth: Any, half_eps: float) -> tuple[float, str]:
    """Return (rows or columns that are off as a whole, as a share of the allowed number; their description)."""
    most, words = 0.0, ""
    for name, (errors, owns, truths) in _views((error, own, truth)):
        limit = (ROUNDINGS * half_eps * _rms(truths)).maximum(OWN * _allowance(owns, truths))
        explained = _explained(errors, truths)
        off = explained > limit + _by_chance(errors, explained)
        count = int(off.sum())
        if (share := count / (SHARE * len(explained))) > most:
            worst = float((explained / _rms(truths).clamp_min(1e-300)).where(off, 0.0).max())
            most, words = (
                share,
                f"{count} of {len(explained)} {name} are off as a whole, by up to {worst:.2g} of their size, "
                "which rounding does not explain",
            )
    return most, words


def near(apart: Any, base: Any, half_eps: float) -> Any:
    """True, as a tensor, if gain and offset of the distance to the baseline prove that beyond() would find
    less than 1.
    """
    fits = None
    for _, (aparts, bases) in _views((apart, base)):
        good = (_explained(aparts, bases) > 0.5 * ROUNDINGS * half_eps * _rms(bases)).sum() <= SHARE * len(bases)
        fits = good if fits is None else fits & good
    return fits if fits is not None else apart.new_ones((), dtype=bool)


def _views(tensors: tuple[Any, ...]) -> list[tuple[str, list[Any]]]:
    """The tensors as rows of the last dimension, and as columns across them, where there are enough elements."""
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
    """The part of the baseline's error that gain and offset explain in each row, or in most rows of that size."""
    explained, sizes = _explained(owns, truths), _rms(truths)
    usual = _rms((explained / sizes.clamp_min(1e-300)).unsqueeze(0))
    return explained.maximum(usual * sizes)


def _by_chance(errors: Any, explained: Any) -> Any:
    """The part that independent errors, as large as the unexplained ones, would explain by chance."""
    rest = (errors.square().mean(1) - explained.square()).clamp_min_(0.0).sqrt_()
    return NOISE * rest / errors.shape[1] ** 0.5


def _rms(rows: Any) -> Any:
    return rows.square().mean(1).sqrt_()
