"""Inputs of one call, drawn anew from a secret seed: plain ones with secret statistics, and adversarial ones.

Every element is drawn for its call alone. Windows of pools would take a sixth of the time on a CPU (0.43 ns per element
instead of 2.5 ns on one core, measured), but a candidate that remembers inputs learns the pools. On a GPU, fresh values
cost no more than windows: a window is read twice and written once, a fresh value is only written.

Plain inputs do not have unit variance and zero mean. Scale and mean are drawn per call; within a call they differ from
row to row and between two parts of each row, and most calls have a texture (see textures.py). A kernel that assumes a
statistic (an RMS norm without the RMS), measures it in one row for all, or measures it in a part or a sample of the
row, is wrong in the timed calls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aisp_mcp.bench import RAND_SCALE, RANDN_SCALE, RANDN_SHIFT
from aisp_mcp.judge.protocol.draws import drawing, near, textures

MODES = ("plain", "exact", "spikes", "zeros", "tiny", "constant")
# Of floats, or of integers and texts; for a sentence.
MEANINGS = {
    "exact": "small integers or fractions, or sorted",
    "spikes": "outliers, or ties",
    "zeros": "mostly zeros, or skewed",
    "tiny": "near 0, or of two values",
    "constant": "all equal",
    "thousands": "up to some thousands",
    "large": "cubes overflow",
    "huge": "squares or cubes overflow",
    "missing": "some NaN",
    "offset": "far from 0 for their spread",
    "lowest": "integers at the lower end of their range",
    "highest": "integers at the upper end of their range",
}
# What these kinds are where no input is of floats.
OF_INTEGERS = {"exact": "sorted", "spikes": "ties", "zeros": "skewed", "tiny": "two"}
# Inputs on which the baseline must be tried first, since its output may not be finite. The size of their values is the
# largest finite number to this power, and at most THOUSANDS of thousands: squares of huge ones overflow, and those of
# large ones do not. In float64, in which outputs are compared, none is huge.
SIZES = {"huge": 0.52, "large": 0.4, "thousands": 0.25}
THOUSANDS = 1e4
# Inputs with some NaN, for a baseline that names NaN and whose output is finite all the same.
MISSING = "missing"
# Inputs whose mean is far above their spread: the eps of their type to this power. A variance as a difference of
# squares is off by eps times the square of that: 1 to 5 % in float32, so that it shows, and some digits are left.
OFFSET, OFFSET_POWER = "offset", -0.4
# All integers, single ones too, at one end of their declared range: labels that are all ignored, a window of one.
ENDS = ("lowest", "highest")
# Values this many times as large as declared: on these, programs are timed and not compared.
BEYOND, BEYOND_TIMES = "beyond", 1000.0
# Calls that decide whether a program is correct come in cycles of all kinds of inputs: this many cycles up to this many
# bytes of a call's tensors and seconds of a baseline's call, and fewer for larger ones.
BATTERY_CYCLES, BATTERY_BYTES, BATTERY_S = 3, 4 << 20, 0.01
WIDE = 2.0  # rows may have a texture if the bounds of the range differ by at least this factor
EXACT_PARTS = (1, 2, 4, 16)  # of one, of which exact values are multiples
Range = tuple[float, float]


def battery(call_bytes: int, call_s: float, draw: random.Random) -> Iterator[tuple[str, int]]:
    """Kinds of inputs, and seeds, of the calls that decide whether a program is correct, in order. After each on plain
    inputs comes one on nearly the same.
    """
    share = min(1.0, BATTERY_BYTES / max(call_bytes, 1), BATTERY_S / max(call_s, 1e-9))
    number = 0
    for mode in [*(["plain", *MODES, *SIZES] * max(1, round(share * BATTERY_CYCLES))), MISSING, OFFSET, *ENDS]:
        seed = draw.getrandbits(48)
        yield mode, seed
        if mode == "plain":
            yield mode, near.seed_of(seed, number)
            number += 1


class CallRng:
    """The Rng of one call (see aisp_mcp.bench.Rng): the same seed and mode give the same tensors again.

    secret_statistics: False for static tensors, whose values a candidate may examine anyway. alike: slices along
    leading axes have no weights: losses of batches with weights scatter too much to compare. kind: the mode. changed:
    (draw, way) of the one draw in which a few elements differ, see near.py. draws: so far, of those that can differ.
    """

    def __init__(
        self,
        device: str,
        seed: int,
        mode: str = "plain",
        secret_statistics: bool = True,
        alike: bool = False,
        changed: tuple[int, int] | None = None,
    ) -> None:
        import torch

        self.device = device
        self.torch = torch
        self._draw = random.Random(seed)
        self.kind, self._alike = mode, alike
        self.draws, self._changed, self._own = 0, changed, random.Random(seed ^ 1)
        self._common = self._own.getrandbits(63)
        self._secret = secret_statistics and mode == "plain"

    def _generator(self) -> Any:
        generator = self.torch.Generator(device=self.device)
        generator.manual_seed(self._draw.getrandbits(63))
        return generator

    def _drawn(self, shape: Sequence[int], method: str, *parameters: float) -> Any:
        return drawing.draw(self.torch.empty(shape, device=self.device), method, self._generator, *parameters)

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def randn(
        self,
        *shape: int,
        dtype: str = "float32",
        scale: float | Range = RANDN_SCALE,
        shift: float = RANDN_SHIFT,
        nan: float = 0.0,
        inf: float = 0.0,
    ) -> Any:
        kind = self._dtype(dtype)
        if kind.is_complex:
            part = "float64" if dtype == "complex128" else "float32"
            parts = self.randn(*shape[:-1], 2 * shape[-1], dtype=part, scale=scale, shift=shift, nan=nan, inf=inf)
            return self.torch.view_as_complex(parts.view(*shape, 2)).to(kind)
        values = self._drawn(shape, "normal_")
        values = self._restated(values, _range(scale), lambda _: shift, None) if self._secret else values
        values = self._near(self._precise(values, dtype), near.other_floats)
        if self.kind in SIZES:
            values = values * _size(self.kind, self.torch.finfo(kind).max, dtype)
        elif self.kind == OFFSET:
            values = values + self.torch.finfo(kind).eps ** OFFSET_POWER
        else:
            values = _ADVERSARIAL[self.kind](values, self._draw)
        return self._planted(values, nan, inf).to(kind)

    def _precise(self, values: Any, dtype: str) -> Any:
        """For a result in float64: the values with low bits of their own, which float32 cannot hold."""
        if dtype != "float64":
            return values
        return values.double().mul_(self._drawn(values.shape, "uniform_", -1, 1).double().mul_(2.0**-24).add_(1.0))

    def _planted(self, values: Any, nan: float, inf: float) -> Any:
        """Replace about these shares of the values by NaN and by infinities of either sign."""
        if not (nan or inf):
            return values
        draw = self.torch.rand(values.shape, device=self.device, generator=self._generator())
        values = values.where(draw >= nan, math.nan)
        values = values.where((draw < nan) | (draw >= nan + inf / 2), math.inf)
        return values.where((draw < nan + inf / 2) | (draw >= nan + inf), -math.inf)

    def rand(self, *shape: int, dtype: str = "float32", scale: float | Range = RAND_SCALE) -> Any:
        values = self._drawn(shape, "uniform_", -1, 1)
        if self._secret:
            values = self._restated(values, _range(scale), lambda size: max(1.0 - size, 0.0), 1.0)
        changed = _ADVERSARIAL.get(self.kind, _plain)  # bounded values are never large
        precise = self._near(self._precise(values, dtype), near.other_floats)
        bounded = changed(precise, self._draw).clamp_(-1, 1)
        return (bounded.mul_(BEYOND_TIMES) if self.kind == BEYOND else bounded).to(self._dtype(dtype))

    def _restated(self, values: Any, scale: Range, most_shift: Callable[[float], float], height: float | None) -> Any:
        """Give the values, in place, the secret statistics of this tensor.

        Each row of the last dimension is multiplied by a factor between two drawn from the range, and shifted by a mean
        between two drawn, in units of the factor. Then either the columns from a secret one on have another factor, or
        the row gets a texture. most_shift: the largest mean for a largest factor. height: the bound of the values'
        magnitudes, None for normal ones.
        """
        if not values.numel():
            return values
        width = values.shape[-1] if values.ndim else 1
        rows = values.view(-1, width)
        (low, high), (least, most) = self._part(*map(math.log, scale)), map(math.log, scale)
        is_wide = scale[1] >= WIDE * scale[0]
        texture = textures.choose(width, self._draw) if is_wide else None
        if texture:
            low, high = least, most
        column = self._draw.uniform(least - low, most - high)  # keeps every factor in the declared range
        bound = most_shift(math.exp(max(high, high + column)))
        mean_low, mean_high = self._part(-bound, bound)
        statistics = self._statistics(rows, (low, high), (mean_low, mean_high))
        if is_wide and not self._alike and (weights := textures.along_an_axis(values, self._draw)) is not None:
            statistics = statistics.weighted(weights)
        if texture:
            texture(rows, statistics, self._draw, self._generator, height or self._draw.uniform(*textures.FEW_HEIGHT))
        else:
            first = self._draw.randrange(width + 1)
            statistics.apply(rows[:, :first])
            statistics.apply(rows[:, first:], math.exp(column))
        values = rows.view(values.shape)
        if is_wide and not self._alike and values.ndim > 1 and values.shape[-1] == values.shape[-2]:
            textures.keep_a_diagonal(values, self._draw)
        return values

    def _statistics(self, rows: Any, logs: Range, means: Range) -> textures.Statistics:
        """A factor of each row, whose logarithm is between two numbers, and its mean in units of the factor."""
        if len(rows) == 1 and not rows.is_cuda:  # numbers instead of tensors: a third of the time of a small input
            factor = math.exp(self._draw.uniform(*logs))
            return textures.Statistics(factor, factor * self._draw.uniform(*means))
        generator = self._generator()
        factors, mean = rows.new_empty(2, len(rows), 1)
        factors.uniform_(*logs, generator=generator).exp_()
        return textures.Statistics(factors, mean.uniform_(*means, generator=generator).mul_(factors))

    def _part(self, low: float, high: float) -> Range:
        """Two numbers drawn from an interval, the smaller one first."""
        first, second = sorted(self._draw.uniform(low, high) for _ in range(2))
        return first, second

    def randint(self, low: int, high: int, *shape: int, dtype: str = "int64", any_values: bool = False) -> Any:
        kind = self._dtype(dtype)
        if any_values and self.kind in ENDS:
            low, high = (low, low + 1) if self.kind == "lowest" else (high - 1, high)
        values = self.torch.randint(low, high, shape, device=self.device, dtype=kind, generator=self._generator())
        values = self._near(values, near.other_integers(low, high))
        return _INTEGERS.get(self.kind, _plain)(values, self._draw) if any_values and values.numel() > 1 else values

    def permutation(self, n: int) -> Any:
        return self._near(self.torch.randperm(n, device=self.device, generator=self._generator()), None)

    def bernoulli(self, p: float, *shape: int, any_values: bool = False) -> Any:
        values = self._near(self._drawn(shape, "uniform_") < p, near.other_booleans)
        return _BOOLEANS.get(self.kind, _plain)(values, self._draw) if any_values and values.numel() > 1 else values

    def seed(self) -> int:
        """A seed of a value; where parts have ties or are equal, one for all values of a call, which are then alike."""
        return self._common if self.kind in ("spikes", "constant") else self._draw.getrandbits(63)

    def way(self) -> int | None:
        """The way in which a value that was made of the last seed() differs; None if it does not."""
        self.draws += 1
        if self.kind == "spikes" and self.draws > 1:
            return self._draw.randint(-256, 255)
        return self._changed[1] if self._changed and self._changed[0] == self.draws - 1 else None

    def _near(self, values: Any, change: near.Change | None) -> Any:
        """The values of a draw; of the one that differs, changed."""
        if values.numel() < near.LEAST:
            return values
        way = self.way()
        return values if way is None else near.changed(values, way, self._own, change)


def _size(mode: str, largest: float, dtype: str) -> float:
    size: float = largest ** (SIZES["large"] if (mode, dtype) == ("huge", "float64") else SIZES[mode])
    return min(size, THOUSANDS) if mode == "thousands" else size


def _range(scale: float | Range) -> Range:
    return (scale, scale) if isinstance(scale, int | float) else scale


def _plain(values: Any, _: random.Random) -> Any:
    return values


def _exact(values: Any, draw: random.Random) -> Any:
    """Small integers, in three of four draws beside halves to sixteenths: sums and products are exact, so a narrower
    format shows at once, and some lie between two integers or on a bound.
    """
    whole = values.mul(3).round_().clamp_(-8, 8)
    if draw.random() < 0.25:
        return whole
    at = draw.randrange(len(EXACT_PARTS)) + values.mul(1e4).floor_()
    return whole.div_(values.new_tensor(EXACT_PARTS)[at.remainder_(len(EXACT_PARTS)).long()])


def _spikes(values: Any, draw: random.Random) -> Any:
    """A few values two orders larger at random positions, possibly the first or the last."""
    flat = values.flatten()
    count = flat.numel()
    for index in {0, count - 1, *(draw.randrange(count) for _ in range(8))} if count else ():
        if draw.random() < 0.7:
            flat[index] = draw.choice((-100.0, 100.0))
    return flat.view(values.shape)


def _zeros(values: Any, _: random.Random) -> Any:
    """Mostly zeros: a sum that skips or samples its elements is wrong."""
    return values.where(values.abs() > 2.0, values.new_zeros(()))


def _tiny(values: Any, _: random.Random) -> Any:
    """Values near 1e-18: products reach the subnormal range of float32."""
    return values.mul(1e-18)


def _constant(values: Any, draw: random.Random) -> Any:
    """One value everywhere, another one each time."""
    return values.new_full(values.shape, draw.uniform(0.25, 2.0) * draw.choice((-1, 1)))


def _missing(values: Any, draw: random.Random) -> Any:
    """One in seven, eleven or thirteen is NaN: widths of rows are seldom a multiple, so no column is."""
    flat, step = values.flatten(), draw.choice((7, 11, 13))
    flat[draw.randrange(step) :: step] = math.nan
    return flat.view(values.shape)


def _sorted(values: Any, draw: random.Random) -> Any:
    ordered = values.flatten().sort(descending=draw.random() < 0.5).values
    return ordered.view(values.shape)


def _with_ties(values: Any, draw: random.Random) -> Any:
    """One in ten is that of another element."""
    flat = values.flatten()
    count = max(1, len(flat) // 10)
    flat[draw.randrange(len(flat) - count + 1) :][:count] = flat[:count].clone()
    return flat.view(values.shape)


def _skewed(values: Any, draw: random.Random) -> Any:
    """Small ones are far more frequent: each is the smallest of several."""
    flat = values.flatten()
    for _ in range(3):
        flat = flat.minimum(flat.roll(draw.randrange(len(flat))))
    return flat.view(values.shape)


def _two(values: Any, draw: random.Random) -> Any:
    """Two of the values, or -1, 0 and 1 where they have both signs: 0 is rare in a wide range."""
    flat = values.flatten()
    if bool(flat.min() < 0 < flat.max()) and draw.random() < 0.5:
        return values % 3 - 1
    one, other = (flat[draw.randrange(len(flat))].clone() for _ in range(2))
    return one.where(values % 2 == 0, other)


def _equal(values: Any, draw: random.Random) -> Any:
    flat = values.flatten()
    return flat[draw.randrange(len(flat))].clone().expand(values.shape).contiguous()


def _whole_rows(values: Any, draw: random.Random) -> Any:
    """A few rows, or stretches of a single one, are all true or all false: a mask that hides everything."""
    rows = values.view(-1, values.shape[-1]) if values.ndim > 1 else values.view(-1)
    for _ in range(3):
        first = draw.randrange(len(rows))
        rows[first : first + max(1, len(rows) // 8)] = draw.random() < 0.5
    return values


def _alike(values: Any, draw: random.Random) -> Any:
    return values.fill_(draw.random() < 0.5)


# Kinds of integers for functions that take any: by the kind of the other inputs.
_INTEGERS: dict[str, Callable[[Any, random.Random], Any]] = {
    "plain": _plain,
    "exact": _sorted,
    "spikes": _with_ties,
    "zeros": _skewed,
    "tiny": _two,
    "constant": _equal,
}
_BOOLEANS: dict[str, Callable[[Any, random.Random], Any]] = {
    "exact": _sorted,
    "spikes": _whole_rows,
    "zeros": _skewed,
    "constant": _alike,
}
_ADVERSARIAL: dict[str, Callable[[Any, random.Random], Any]] = {
    "plain": _plain,
    "exact": _exact,
    "spikes": _spikes,
    "zeros": _zeros,
    "tiny": _tiny,
    "constant": _constant,
    MISSING: _missing,
    BEYOND: _plain,
    **dict.fromkeys(ENDS, _plain),
}
