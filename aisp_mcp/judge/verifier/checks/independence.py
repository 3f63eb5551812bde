"""Independence of random draws: between calls, and between the parts of one call.

A candidate that keeps a pool of draws and rolls it, or repeats one draw inside a tensor, has the right distribution.
Three tests find it. They look at the signs of the noise, at the signs relative to the expectation (a dropout mask shows
there), and at which elements are large:

- Signed correlation at all lags, by FFT, forwards and backwards, of a draw with itself and with the sum of earlier
  ones: of blocks in each call, of the whole tensor in some. Finds similar parts, also complemented or reversed.
- Equal stretches anywhere in the tensor or in earlier draws, by a rolling hash. Finds copied parts at any lag.
- Rank over GF(2) (mask_rank.py). Finds rows that are exclusive-ors of a few others.

The baseline's draws on the same inputs are the control: structure that both share, such as a mask, is not held against
the candidate.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aisp_mcp.judge.verifier.checks.mask_rank import Ranks

BLOCK, WHOLE = 1 << 16, 1 << 21  # elements whose correlations are computed in every call; at most, in some calls
WHOLE_FIRST, WHOLE_SHARE = 3, 0.125  # those are the first few calls and this share of the later ones
PAST = 16  # earlier draws to correlate with; four times as many are remembered by their hashes
SIGMAS = 8.2  # one-sided chance of 1e-16: two tests of 100,000 lags in each of some hundred calls
LEAST = 0.03  # smaller correlations are never reported
CHUNK, CHUNKS = 1 << 16, 4  # of a large tensor; hashed at positions drawn for each call
STRETCH, ANCHORS = 128, 64  # elements of a stretch; one stretch in this many is remembered, chosen by its hash
COPIED = 0.03  # share of equal stretches allowed beyond the baseline's


@dataclass
class _Pasts:
    """Earlier draws of one kind, of candidate and baseline: blocks of unit energy by length, and hashes of their
    stretches.
    """

    blocks: dict[int, deque[list[Any]]] = field(default_factory=dict)
    hashes: list[deque[Any]] = field(default_factory=lambda: [deque(maxlen=4 * PAST) for _ in range(2)])

    def blocks_of(self, size: int) -> deque[list[Any]]:
        """Those of that length."""
        return self.blocks.setdefault(size, deque(maxlen=PAST if size <= BLOCK else PAST // 4))


class Independence:
    """Tests of one output of a process over all its calls."""

    def __init__(self) -> None:
        self._start = random.random()
        self._factor = random.getrandbits(63) | 1
        self._pasts = [_Pasts() for _ in range(3)]
        self._ranks = [Ranks() for _ in range(2)]
        self._calls = 0

    def failure(self, out: Any, own: Any, mean: Any) -> str | None:
        """Describe a dependence that the baseline's draw `own` does not show, or return None. All have the
        same shape.
        """
        center = mean.flatten().double()
        noises = [tensor.flatten().double() - center for tensor in (out, own)]
        spans, row = _chunks(center.numel()), mean.shape[-1] if mean.ndim else 1
        self._calls += 1
        sizes = [BLOCK]
        if self._calls <= WHOLE_FIRST or random.random() < WHOLE_SHARE:
            sizes.append(WHOLE)
        for kind, signs in enumerate(_signs(noises, center)):
            problem = self._correlated(signs, self._pasts[kind], sizes)
            if not problem and kind < len(self._ranks):  # large elements may be as rare as in the inputs
                problem = self._ranks[kind].failure(signs, row) or self._copied(signs, self._pasts[kind], spans)
            if problem:
                return problem
        return None

    def _correlated(self, signs: list[Any], pasts: _Pasts, sizes: list[int]) -> str | None:
        total = len(signs[0])
        for size in sorted({min(size, total) for size in sizes}):
            begin = int(self._start * (total - size + 1))
            blocks = [sign[begin : begin + size].float() for sign in signs]
            if problem := _resembles(blocks, pasts.blocks_of(size)):
                return problem
        return None

    def _copied(self, signs: list[Any], pasts: _Pasts, spans: list[tuple[int, int]]) -> str | None:
        import torch

        copies, total = [], 1
        for sign, hashes in zip(signs, pasts.hashes, strict=True):
            parts = [self._hashes(sign[begin:end]) for begin, end in spans]
            now = torch.cat(parts) if parts else sign.new_empty(0, dtype=torch.int64)
            again = len(now) - len(now.unique())
            known = torch.isin(now, torch.cat(list(hashes))) if hashes else now.new_zeros(0)
            copies.append(again + int(known.sum()))
            hashes.append(now)
            total = max(len(now), 1)
        if copies[0] <= 2 * copies[1] + max(COPIED * total, 16):
            return None
        return f"stretches of its noise are copies: {copies[0]} of {total}, the baseline's {copies[1]}"

    def _hashes(self, signs: Any) -> Any:
        """Hashes of the stretches to remember, chosen independently of position: those divisible by ANCHORS. A stretch
        and its complement have the same hash.
        """
        import torch

        if len(signs) <= STRETCH:
            return torch.empty(0, dtype=torch.int64, device=signs.device)
        both = (self._factor, pow(self._factor, -1, 1 << 64))
        forward, back = (_powers(factor, len(signs), str(signs.device)) for factor in both)
        sums = (signs.long() * forward).cumsum(0)
        stretches = (sums[STRETCH:] - sums[:-STRETCH]) * back[1 : len(sums) - STRETCH + 1]
        stretches = stretches.abs()
        mixed = (stretches ^ (stretches >> 29)) * 0x5851F42D4C957F2D  # low bits of a product mix poorly
        mixed = mixed ^ (mixed >> 32)
        return mixed[mixed % ANCHORS == 0]


def _signs(noises: list[Any], center: Any) -> Iterator[list[Any]]:
    """The signs of the noise, the signs relative to the expectation, and whether the noise is larger than
    most of it.
    """
    yield [noise.sign() for noise in noises]
    yield [noise.sign() * center.sign() for noise in noises]
    yield [(noise.abs() - noise.abs().median()).sign() for noise in noises]


def _resembles(blocks: list[Any], past: deque[list[Any]]) -> str | None:
    """Describe similarities with itself or with earlier blocks that the candidate's block has and the
    baseline's lacks.
    """
    blocks = [block - block.mean() for block in blocks]
    energies = [float(block.square().sum()) for block in blocks]
    units = [block / (math.sqrt(energy) or 1.0) for block, energy in zip(blocks, energies, strict=True)]
    others = [sum(earlier, unit) for unit, *earlier in zip(units, *past, strict=True)]
    count = len(past) + 1
    past.append(units)
    if not min(energies):
        return None
    # Bernstein's bound: rare signs coincide by chance far more often than a normal distribution predicts.
    rare = SIGMAS**2 / 3 * max(float(block.abs().max()) ** 2 for block in blocks) / min(energies)
    allowed = max(SIGMAS * math.sqrt(2 * count / len(units[0])) + count * rare, LEAST)
    ours, usual = _spectra(units[0], others[0]), None
    for backwards in (False, True):
        likeness = _likeness(ours, backwards)
        if float(likeness.abs().max()) <= allowed:  # the usual case; saves computing the baseline's
            continue
        usual = usual or _spectra(units[1], others[1])
        excess = likeness.abs() - _likeness(usual, backwards).abs()
        lag = int(excess.argmax())
        if float(excess[lag]) > allowed:
            return _described(
                lag, len(units[0]), backwards, count, f"{float(likeness[lag]):.3g}, allowed {allowed:.3g}"
            )
    return None


def _described(lag: int, size: int, backwards: bool, count: int, numbers: str) -> str:
    words = "itself" if count == 1 else "itself or earlier calls"
    lag = lag if lag < size or backwards else lag - 2 * size
    where = f"its reverse, moved by {lag}" if backwards else f"lag {lag}"
    return f"its noise resembles {words} at {where}: correlation {numbers}"


def _spectra(block: Any, other: Any) -> tuple[Any, Any]:
    """Spectra of two blocks, each zero-padded to twice its length."""
    import torch

    size = 2 * len(block)
    return torch.fft.rfft(block, size), torch.fft.rfft(other, size)


def _likeness(spectra: tuple[Any, Any], backwards: bool) -> Any:
    """Correlations at all lags of a block with the sum of itself and earlier ones, without its correlation with itself
    at lag 0.
    """
    import torch

    block, other = spectra
    correlation = torch.fft.irfft(block * (other if backwards else other.conj()))
    if not backwards:
        correlation[0] -= 1.0
    return correlation


@lru_cache(maxsize=8)
def _powers(factor: int, count: int, device: str) -> Any:
    """factor**0, factor**1, … modulo 2**64."""
    import torch

    signed = factor - (1 << 64) if factor >= 1 << 63 else factor
    powers = torch.full((count,), signed, dtype=torch.int64, device=device)
    powers[0] = 1
    return powers.cumprod(0)


def _chunks(count: int) -> list[tuple[int, int]]:
    """(begin, end) of the parts of a tensor to examine: all of it, or disjoint parts drawn at random."""
    if count <= CHUNK * CHUNKS:
        return [(0, count)]
    starts = sorted(random.sample(range(count // CHUNK), CHUNKS))
    shift = random.randrange(CHUNK)
    return [(at * CHUNK + shift, min(at * CHUNK + shift + CHUNK, count)) for at in starts]
