"""Tests of random outputs, for contracts such as dropout or sampling.

The specification's reference returns the expected output for the inputs. Subtracting it from a draw leaves the noise.
The candidate's noise must be distributed like the baseline's, must depend on the expectation in the same way, and must
be new in every call and in every part of a call. Each test has a false-alarm rate of about 1e-7.

A candidate that keeps a pool of draws and rolls it, or repeats one draw inside a tensor, has the right distribution.
Three tests of independence find it. They look at the signs of the noise, at the signs relative to the expectation (a
dropout mask shows there), and at which elements are large:

- Signed correlation at all lags, by FFT, forwards and backwards, of a draw with itself and with the sum of earlier
  ones: of blocks in each call, of the whole tensor in some. Finds similar parts, also complemented or reversed.
- Equal stretches anywhere in the tensor or in earlier draws, by a rolling hash. Finds copied parts at any lag.
- Rank over GF(2). The signs of a draw are cut into blocks, which are bit vectors. Random vectors are independent until
  there are nearly as many as they have bits. Blocks that are exclusive-ors of rows of a pool are dependent as soon as
  there are more of them than rows in the pool, whichever rows are combined. Blocks of earlier calls count too.

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

SIGMAS = 5.3  # standard errors; two-sided chance of 1e-7 of a normal distribution
# Correlation of two draws that is never reported, beyond that of the baseline's. Chosen: the reuse of so few saves
# little.
LEAST_REPEATED = 0.02
MOST = 1 << 18  # elements compared per call; chosen: the tests find differences of 1 % in as many
# Width of the bins of noise as a share of the largest value, and their offset in widths. Chosen: far wider than a
# rounding of float32, and no round number at an edge (the golden section).
GRAIN, OFFSET = 2.0**-14, 0.3819660
# Bins from which on the chi-square test is made, and its limit in standard errors. Chosen: sums of so many terms are
# nearly normal, where 8 have a chance of 1e-15; 100,000 numbers from a table of 65,536 are 40 off.
LEAST_BINS, MOST_DISPERSED = 200, 8.0
LEAST_ELEMENTS = 256  # fewer are not tested; chosen: the limit of the distance is 0.26 there

# The following are chosen (commits e6c61974, 8543393f). They are safe since the baseline's draws are the control.
# Elements whose correlations are computed in every call; at most, in some calls: the first WHOLE_FIRST and this share
# of the later ones.
BLOCK, WHOLE = 1 << 16, 1 << 21
WHOLE_FIRST, WHOLE_SHARE = 3, 0.125
PAST = 16  # earlier draws to correlate with; four times as many are remembered by their hashes
LAG_SIGMAS = 8.2  # one-sided chance of 1e-16: two tests of 100,000 lags in each of some hundred calls
LEAST_CORRELATION = 0.03  # smaller correlations at a lag are never reported
CHUNK, CHUNKS = 1 << 16, 4  # elements, number: parts of a large tensor, hashed at positions drawn for each call
STRETCH, ANCHORS = 128, 64  # elements of a stretch; one stretch in this many is remembered, chosen by its hash
COPIED, LEAST_COPIES = 0.03, 16  # share and number of equal stretches allowed beyond the baseline's
SPARE = 64  # bits beyond the number of vectors: random ones are dependent with probability 2^-64
BY_CHANCE = 2  # dependent blocks allowed
# The share of the baseline's bits that must be non-zero. Sparser blocks are often empty, and so dependent by chance: of
# honest masks of 64 rows of 128 elements, 4.6 % of them not zero, 22 of 300 were accused.
LEAST_SET = 0.25
MOST_BITS, LEAST_BITS = 1024, 128  # of a block
ROWS_OF_CALL, ROWS_OVER_CALLS = 192, 8  # blocks of each call for the two tests of the rank


@dataclass
class DrawTests:
    """Checks the draws of one process over its calls, in the order in which they are verified.

    earlier: (noise, the baseline's noise, expectation) of each output in the previous call.
    """

    earlier: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    independence: dict[int, Independence] = field(default_factory=dict)

    def failure(self, index: int, out: Any, own: Any, mean: Any) -> str | None:
        """Describe what is wrong with a draw, or return None. out: the candidate's; own: the baseline's; mean: the
        expectation. All have the same shape. index: number of the output.
        """
        import torch

        if not bool(torch.isfinite(out).all()):
            return "a random output is not finite"
        step = -(-out.numel() // MOST)
        drawn, usual, center = (tensor.flatten()[::step].double() for tensor in (out, own, mean))
        noise, usual_noise = drawn - center, usual - center
        now = (noise, usual_noise, center)
        before, self.earlier[index] = self.earlier.get(index), now
        once = _other_shape(noise, usual_noise) or _few_values(noise, usual_noise)
        once = once or _other_slope(*now) or _repeated(now, before)
        return once or self.independence.setdefault(index, Independence()).failure(out, own, mean)


def _other_shape(noise: Any, usual: Any) -> str | None:
    """Two-sample Kolmogorov-Smirnov test on binned noise, so that rounding in another order makes no difference."""
    counts = (count.cumsum(0) for count in _binned(noise, usual))
    shares = [count.double() / count[-1] for count in counts]
    distance = float((shares[0] - shares[1]).abs().max())
    limit = math.sqrt(-math.log(0.5e-7) / noise.numel())  # asymptotic, two samples of equal size
    if distance <= limit:
        return None
    return f"its noise is not distributed like the baseline's: distance {distance:.3g}, allowed {limit:.3g}"


def _few_values(noise: Any, usual: Any) -> str | None:
    """Two-sample chi-square test on the same bins: numbers from a table leave most of them empty, and lack the tails.

    Noise that differs between the halves of the baseline's draw depends on its place, and is not tested so.
    """
    half = len(usual) // 2
    excess, bins = _dispersion(*_binned(noise, usual))
    if bins < LEAST_BINS or excess <= MOST_DISPERSED or _dispersion(*_binned(usual[:half], usual[half:]))[0] > SIGMAS:
        return None
    return f"its noise has other values than the baseline's: {excess:.0f} standard errors, allowed {MOST_DISPERSED:g}"


def _dispersion(one: Any, other: Any) -> tuple[float, int]:
    """By how many standard errors the counts of two samples of equal size differ more than by chance, and the number of
    bins that are not empty. Each (a - b)^2 / (a + b) is 1 in the mean, with a variance of 2 - 2 / (a + b).
    """
    both = one + other
    one, other, both = (counts[both > 0].double() for counts in (one, other, both))
    apart, spread = (one - other).square() / both, 2.0 - 2.0 / both
    return float((apart - 1.0).sum()) / (math.sqrt(float(spread.sum())) or 1.0), len(both)


def _binned(*noises: Any) -> list[Any]:
    """The number of elements of each noise in each bin of all."""
    import torch

    grain = max(float(noise.abs().max()) for noise in noises) * GRAIN or 1.0
    steps = ((noise / grain + (OFFSET + 1 / GRAIN)).floor_().long() for noise in noises)
    return [torch.bincount(step, minlength=int(2 / GRAIN) + 2) for step in steps]


def _other_slope(noise: Any, usual: Any, center: Any) -> str | None:
    """Compare how the noise depends on the expectation: a difference shows that a term is missing or was added."""
    energy = float(center.square().sum())
    if energy == 0.0:
        return None
    slopes = [float((residual * center).sum()) / energy for residual in (noise, usual)]
    spread = math.sqrt(float(((noise.square() + usual.square()) * center.square()).sum())) / energy
    if abs(slopes[0] - slopes[1]) <= SIGMAS * spread:
        return None
    return f"its expectation is off by {slopes[0] - slopes[1]:+.3g} times the reference, allowed {SIGMAS * spread:.3g}"


def _repeated(now: tuple[Any, Any, Any], before: tuple[Any, Any, Any] | None) -> str | None:
    """Compare draws of different calls: they must not resemble each other more than the baseline's do, neither as they
    are nor relative to the expectation, where a reused mask shows.
    """
    if before is None:
        return None
    for units in (_as_it_is, _in_units):
        (ours, error), (usual, other) = (_likeness(units(now[i], now[2]), units(before[i], before[2])) for i in (0, 1))
        if ours > max(usual, 0.0) + max(SIGMAS * math.hypot(error, other), LEAST_REPEATED):
            return f"its noise repeats that of an earlier call: correlation {ours:.3g}, the baseline's {usual:.3g}"
    return None


def _as_it_is(noise: Any, _: Any) -> Any:
    return noise


def _in_units(noise: Any, center: Any) -> Any:
    """Noise over expectation, clipped; zero where the expectation is zero."""
    import torch

    return torch.nan_to_num(noise / center, 0.0, 0.0, 0.0).clamp_(-10, 10)


def _likeness(left: Any, right: Any) -> tuple[float, float]:
    """Correlation, and its standard error under independence; zeros if either input is constant.

    The error is computed from the products themselves, because a few large elements correlate by chance far more often
    than many equal ones: 1/sqrt(n) is the minimum, reached if all elements vary alike.
    """
    left, right = left - left.mean(), right - right.mean()
    scale = math.sqrt(float(left.square().sum()) * float(right.square().sum()))
    if scale == 0.0:
        return 0.0, 0.0
    products = left * right
    return float(products.sum()) / scale, math.sqrt(float(products.square().sum())) / scale


@dataclass
class _Pasts:
    """Earlier draws of one kind, of candidate and baseline: blocks of unit energy by length, and hashes of their
    stretches.
    """

    blocks: dict[int, deque[list[Any]]] = field(default_factory=dict)
    hashes: list[deque[Any]] = field(default_factory=lambda: [deque(maxlen=4 * PAST) for _ in range(2)])

    def blocks_of(self, size: int) -> deque[list[Any]]:
        return self.blocks.setdefault(size, deque(maxlen=PAST if size <= BLOCK else PAST // 4))


class Independence:
    """Tests of one output of a process over all its calls."""

    def __init__(self) -> None:
        self._start = random.random()
        self._factor = random.getrandbits(63) | 1
        self._pasts = [_Pasts() for _ in range(3)]
        self._ranks = [MaskRanks() for _ in range(2)]
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
        if copies[0] <= 2 * copies[1] + max(COPIED * total, LEAST_COPIES):
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
    rare = LAG_SIGMAS**2 / 3 * max(float(block.abs().max()) ** 2 for block in blocks) / min(energies)
    allowed = max(LAG_SIGMAS * math.sqrt(2 * count / len(units[0])) + count * rare, LEAST_CORRELATION)
    ours, usual = _spectra(units[0], others[0]), None
    for backwards in (False, True):
        likeness = _likeness_at_lags(ours, backwards)
        if float(likeness.abs().max()) <= allowed:  # the usual case; saves computing the baseline's
            continue
        usual = usual or _spectra(units[1], others[1])
        excess = likeness.abs() - _likeness_at_lags(usual, backwards).abs()
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


def _likeness_at_lags(spectra: tuple[Any, Any], backwards: bool) -> Any:
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


class BitSpan:
    """The blocks seen so far, in echelon form: vectors by their highest bit."""

    def __init__(self) -> None:
        self._vectors: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def add(self, vector: int) -> bool:
        """Add a vector; False if it is a sum of earlier ones."""
        while vector:
            top = vector.bit_length()
            if top not in self._vectors:
                self._vectors[top] = vector
                return True
            vector ^= self._vectors[top]
        return False


class MaskRanks:
    """Dependent blocks of the candidate and of the baseline, within each call and over all calls."""

    def __init__(self) -> None:
        self._offset = random.random()  # of the rows that are compared over all calls
        self._over_calls = [BitSpan(), BitSpan()]

    def failure(self, signs: list[Any], row: int) -> str | None:
        """Describe a dependence that the baseline's signs do not show, or return None. signs: of the candidate and of
        the baseline. row: length of a tensor's rows, because repeated masks most often begin at a row.
        """
        stride = row if row >= LEAST_BITS else MOST_BITS
        width, rows = min(stride, MOST_BITS), len(signs[0]) // stride
        if not rows or int(signs[1].count_nonzero()) < LEAST_SET * len(signs[1]):
            return None
        if max(map(len, self._over_calls)) + ROWS_OVER_CALLS > width - SPARE:
            self._over_calls = [BitSpan(), BitSpan()]
        number = min(rows, ROWS_OVER_CALLS)
        begin = int(self._offset * (rows - number + 1))
        problem = _more("earlier ones", signs, self._over_calls, (begin, number, stride, width))
        number = min(rows, ROWS_OF_CALL, width - SPARE)
        begin = random.randrange(rows - number + 1)
        return problem or _more("others", signs, [BitSpan(), BitSpan()], (begin, number, stride, width))


def _more(words: str, signs: list[Any], spans: list[BitSpan], where: tuple[int, int, int, int]) -> str | None:
    dependent = [
        sum(not span.add(vector) for vector in _vectors(sign, *where)) for span, sign in zip(spans, signs, strict=True)
    ]
    if dependent[0] <= 2 * dependent[1] + BY_CHANCE:
        return None
    return (
        f"{dependent[0]} of {where[1]} blocks of its mask are exclusive-ors of {words}, the baseline's {dependent[1]}"
    )


def _vectors(signs: Any, begin: int, number: int, stride: int, width: int) -> list[int]:
    """The first `width` bits of `number` rows from `begin` on."""
    import torch

    rows = signs[begin * stride : (begin + number) * stride].reshape(number, stride)[:, :width]
    bits = (rows > 0).to(torch.uint8)
    bits = torch.nn.functional.pad(bits, (0, -width % 8)).reshape(number, -1, 8)
    powers = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=bits.device)
    packed = (bits * powers).sum(2, dtype=torch.uint8).cpu().numpy()
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
