"""Independence of random draws: between calls, and between the parts of one call.

A candidate that keeps a pool of draws and rolls it, or repeats one draw inside a tensor, has the right distribution.
Two tests find it, both on the signs of the noise, as they are and relative to the expectation, where a dropout mask
shows:

- Correlation at all lags, by FFT, of a draw with itself and with the sum of earlier ones. Finds what resembles.
- Equal stretches anywhere in the tensor or in earlier draws, by a rolling hash. Finds what is copied, at any lag.

The baseline's draws on the same inputs are the control: structure that they share, such as a mask, accuses nobody.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

BLOCK = 1 << 16  # elements whose correlations are computed
PAST = 16  # earlier draws that one is correlated with; those that are known by their stretches are four times as many
SIGMAS = 8.2  # one-sided chance of 1e-16: two tests of 100,000 lags in each of some hundred calls
LEAST = 0.03  # correlation that is never reported
CHUNK, CHUNKS = 1 << 16, 4  # of a large tensor, at places drawn for each call, stretches are looked up
STRETCH, ANCHORS = 128, 64  # elements of a stretch; one of so many is remembered, chosen by its hash
COPIED = 0.03  # share of the stretches that may be equal beyond the baseline's


@dataclass
class _Side:
    """Earlier draws of one process: spectra of their signs, and hashes of their stretches."""

    spectra: deque[Any] = field(default_factory=lambda: deque(maxlen=PAST))
    hashes: deque[Any] = field(default_factory=lambda: deque(maxlen=4 * PAST))


class Independence:
    """Tests of one output of one process over its calls."""

    def __init__(self) -> None:
        self._start = random.random()
        self._factor = random.getrandbits(63) | 1
        self._sides = {(side, kind): _Side() for side in range(2) for kind in range(2)}

    def failure(self, out: Any, own: Any, mean: Any) -> str | None:
        """Describe a dependence that the baseline's draw `own` does not show, or return None. All have one shape."""
        center = mean.flatten().double()
        noises = [tensor.flatten().double() - center for tensor in (out, own)]
        places = _chunks(center.numel())
        for kind, sign in enumerate((None, center.sign())):
            signs = [noise.sign() if sign is None else noise.sign() * sign for noise in noises]
            sides = [self._sides[side, kind] for side in range(2)]
            found = self._correlated(signs, sides) or self._copied(signs, sides, places)
            if found:
                return found
        return None

    def _correlated(self, signs: list[Any], sides: list[_Side]) -> str | None:
        import torch

        size = min(BLOCK, len(signs[0]))
        begin = int(self._start * (len(signs[0]) - size + 1))
        blocks = [sign[begin : begin + size].float() for sign in signs]
        blocks = [block - block.mean() for block in blocks]
        energies = [float(block.square().sum()) for block in blocks]
        spectra = [torch.fft.rfft(block, 2 * size) for block in blocks]
        pasts = [list(side.spectra) for side in sides]
        for side, spectrum, energy in zip(sides, spectra, energies, strict=True):
            side.spectra.append(spectrum / math.sqrt(energy) if energy else spectrum)
        if not min(energies):
            return None
        unit = [spectrum / math.sqrt(energy) for spectrum, energy in zip(spectra, energies, strict=True)]
        # Bernstein's bound: signs that are rare coincide by chance far more often than a normal law has it.
        rare = SIGMAS**2 / 3 * max(float(block.abs().max()) ** 2 for block in blocks) / min(energies)
        found = _resembling("itself", unit, unit, 1, rare)
        if found or not pasts[0]:
            return found
        return _resembling("earlier calls", unit, [sum(past) for past in pasts], len(pasts[0]), rare)

    def _copied(self, signs: list[Any], sides: list[_Side], places: list[tuple[int, int]]) -> str | None:
        import torch

        copies, total = [], 1
        for one, side in zip(signs, sides, strict=True):
            parts = [self._hashes(one[begin:end]) for begin, end in places]
            now = torch.cat(parts) if parts else one.new_empty(0, dtype=torch.int64)
            again = len(now) - len(now.unique())
            known = torch.isin(now, torch.cat(list(side.hashes))) if side.hashes else now.new_zeros(0)
            copies.append(again + int(known.sum()))
            side.hashes.append(now)
            total = max(len(now), 1)
        if copies[0] <= 2 * copies[1] + max(COPIED * total, 16):
            return None
        return f"stretches of its noise are copies: {copies[0]} of {total}, the baseline's {copies[1]}"

    def _hashes(self, signs: Any) -> Any:
        """Hashes of the stretches that are remembered, by position-independent choice: those divisible by ANCHORS."""
        import torch

        if len(signs) <= STRETCH:
            return torch.empty(0, dtype=torch.int64, device=signs.device)
        both = (self._factor, pow(self._factor, -1, 1 << 64))
        forward, back = (_powers(factor, len(signs), str(signs.device)) for factor in both)
        sums = ((signs.long() + 2) * forward).cumsum(0)
        stretches = (sums[STRETCH:] - sums[:-STRETCH]) * back[1 : len(sums) - STRETCH + 1]
        mixed = (stretches ^ (stretches >> 29)) * 0x5851F42D4C957F2D  # low bits of a product know little of the rest
        mixed = mixed ^ (mixed >> 32)
        return mixed[mixed % ANCHORS == 0]


def _resembling(words: str, ours: list[Any], others: list[Any], count: int, rare: float) -> str | None:
    """Describe a correlation that the candidate's spectra have and the baseline's have not, or return None.

    ours, others: spectra of the candidate and of the baseline, of blocks with as many zeros behind them; others are the
    sums of `count` draws. rare: what a coincidence of few signs explains.
    """
    import torch

    size = len(ours[0]) - 1
    found, usual = (torch.fft.irfft(one * other.conj(), 2 * size) for one, other in zip(ours, others, strict=True))
    excess = found - usual.clamp(min=0)
    if others is ours:
        excess[0] = 0.0  # everything resembles itself where it is
    allowed = max(SIGMAS * math.sqrt(2 * count / size) + count * rare, LEAST)
    lag = int(excess.argmax())
    if float(excess[lag]) <= allowed:
        return None
    place = lag if lag < size else lag - 2 * size
    return f"its noise resembles {words} at lag {place}: correlation {float(found[lag]):.3g}, allowed {allowed:.3g}"


@lru_cache(maxsize=8)
def _powers(factor: int, count: int, device: str) -> Any:
    """factor**0, factor**1, … modulo 2**64."""
    import torch

    signed = factor - (1 << 64) if factor >= 1 << 63 else factor
    powers = torch.full((count,), signed, dtype=torch.int64, device=device)
    powers[0] = 1
    return powers.cumprod(0)


def _chunks(count: int) -> list[tuple[int, int]]:
    """(begin, end) of the parts of a tensor that are looked at: all of it, or some drawn now that do not overlap."""
    if count <= CHUNK * CHUNKS:
        return [(0, count)]
    places = sorted(random.sample(range(count // CHUNK), CHUNKS))
    shift = random.randrange(CHUNK)
    return [(at * CHUNK + shift, min(at * CHUNK + shift + CHUNK, count)) for at in places]
