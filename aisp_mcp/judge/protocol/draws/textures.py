"""Structure inside the rows of plain inputs, so that every part of a reduction counts in some timed call.

If the elements of a row are drawn alike, a sample predicts their sum: a sixteenth of them gives it within the tolerance
of bfloat16. So most calls draw one of these textures, each at secret positions. Values stay within the range of plain
inputs.

few: some elements of each row are large and the rest is small, so the large ones decide sums, norms and exponentials.
comb: every p-th column is large and the rest is small; a sample with a fixed stride sees only one kind.
blocks: stretches of each row have their own weights, so that no stretch predicts another.
trend: stretches rise or fall steadily, as sorted data do.

Rows that are drawn alike predict each other, too: a quarter of a batch gives its mean loss. So in most calls the
rows, or the slices along another leading axis, differ in the same ways: a few, every p-th one or stretches are large.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LEAST_WIDTH = 16  # of rows with a texture
EVEN_SHARE = 0.2  # of the calls without one
FEW_HEIGHT = (4.5, 5.75)  # of a large element; the largest of a million normal ones is 4.9 without their mean
SMALL = (-6.0, -3.0)  # binary logarithm of the weight of the small elements
MOST_FEW, MOST_BLOCKS = 8, 6
AXIS_SHARE = 0.75  # of the calls in which slices along a leading axis have weights
# Share of the calls in which square matrices have a heavy diagonal, and the binary logarithm of the rest's weight.
DIAGONAL_SHARE, OFF_DIAGONAL = 0.25, (-20.0, -6.0)
NOISE = 0.1  # weight of the random part of a trend
PERIODS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Statistics:
    """Factors of rows, and their means after multiplication: each a tensor of shape (rows, 1), or on a CPU a number
    if there is only one row.
    """

    factor: Any
    mean: Any

    def weighted(self, weight: Any) -> Statistics:
        """Both times a weight."""
        return Statistics(self.factor * weight, self.mean * weight)

    def apply(self, rows: Any, weight: Any = 1.0) -> Any:
        """Multiply rows, or some of their columns, by factor and weight, and shift them, in place."""
        import torch

        factor, mean = self.factor * weight, self.mean * weight
        if rows.is_cuda:
            return torch.addcmul(mean, rows, factor, out=rows)  # one pass; on a CPU it takes longer than these two
        return rows.mul_(factor).add_(mean)


MakeGenerator = Callable[[], Any]
# (rows, their statistics, draw, maker of generators, largest magnitude before multiplication): applies them, in place
Texture = Callable[[Any, Statistics, random.Random, MakeGenerator, float], None]


def choose(width: int, draw: random.Random) -> Texture | None:
    """A texture for rows of that width, or None."""
    return draw.choice(TEXTURES) if width >= LEAST_WIDTH and draw.random() >= EVEN_SHARE else None


def along_an_axis(values: Any, draw: random.Random) -> Any:
    """Weights of the rows of the last dimension, at most 1, of shape (rows, 1): those of the slices along one of the
    leading axes. None if there is no such axis, or for this call.
    """
    axes = [axis for axis, size in enumerate(values.shape[:-1]) if size > 1]
    if not axes or draw.random() >= AXIS_SHARE:
        return None
    axis = draw.choice(axes)
    size = values.shape[axis]
    kind, weights = draw.choice(("few", "comb", "comb", "blocks")), values.new_full((size,), _small(draw))
    if kind == "few":
        for _ in range(draw.randint(1, min(MOST_FEW, size // 2))):
            weights[draw.randrange(size)] = 1.0
    elif kind == "comb":
        period = draw.choice([period for period in PERIODS if period <= size])
        weights[draw.randrange(period) :: period] = 1.0
    else:
        for begin, end in _stretches(size, draw):
            weights[begin:end] = 2.0 ** draw.uniform(SMALL[0], 0)
    shape = [size if at == axis else 1 for at in range(values.ndim - 1)]
    return weights.view(shape).expand(values.shape[:-1]).reshape(-1, 1)


def keep_a_diagonal(values: Any, draw: random.Random) -> None:
    """In some calls, shrink square matrices but for a diagonal, in place: powers of such a matrix go on changing, while
    those of a random one are constant after a few products.
    """
    import torch

    size = values.shape[-1]
    if size < LEAST_WIDTH or draw.random() >= DIAGONAL_SHARE:
        return
    lines = torch.arange(size, device=values.device)
    columns = (lines + draw.choice((0, draw.randrange(size)))) % size
    kept = values[..., lines, columns].clone()
    values.mul_(2.0 ** draw.uniform(*OFF_DIAGONAL))
    values[..., lines, columns] = kept


def _few(rows: Any, statistics: Statistics, draw: random.Random, make: MakeGenerator, height: float) -> None:
    """The same number of large elements in each row, at random positions, of one sign or of both."""
    import torch

    generator = make()
    count, width = rows.shape
    number = draw.randint(1, min(MOST_FEW, width // LEAST_WIDTH))
    statistics.apply(rows, _small(draw))
    columns = torch.randint(0, width, (count, number), device=rows.device, generator=generator)
    values = rows.new_empty(count, number).uniform_(0.85 * height, height, generator=generator)
    values.mul_(rows.new_empty(count, draw.choice((1, number))).uniform_(-1, 1, generator=generator).sign_())
    values.mul_(statistics.factor)
    # Two positions in a row may coincide. A single scatter would then leave either value on a GPU, and inputs
    # that are drawn again for a check must have the same bits.
    for index, value in zip(columns.split(1, 1), values.split(1, 1), strict=True):
        rows.scatter_(1, index, value)


def _comb(rows: Any, statistics: Statistics, draw: random.Random, _: Any, __: float) -> None:
    """Keep the columns of one class modulo a secret power of two, and shrink the others."""
    period = draw.choice([period for period in PERIODS if period <= rows.shape[1] // 2])
    phase, weight = draw.randrange(period), _small(draw)
    teeth = rows[:, phase::period].clone()
    statistics.apply(rows, weight)
    rows[:, phase::period] = statistics.apply(teeth)


def _blocks(rows: Any, statistics: Statistics, draw: random.Random, make: MakeGenerator, _: float) -> None:
    """Give stretches between secret columns their own weight in each row, at most 1."""
    stretches = _stretches(rows.shape[1], draw)
    weights = rows.new_empty(len(stretches), len(rows), 1).uniform_(SMALL[0], 0, generator=make()).exp2_()
    for (begin, end), weight in zip(stretches, weights, strict=True):
        statistics.apply(rows[:, begin:end], weight)


def _trend(rows: Any, statistics: Statistics, draw: random.Random, _: Any, height: float) -> None:
    """Let stretches between secret columns run from one bound to the other, up or down, with a little noise."""
    import torch

    for begin, end in _stretches(rows.shape[1], draw):
        top = draw.choice((-1, 1)) * draw.uniform(0.3, 0.6) * height / NOISE
        rows[:, begin:end].add_(torch.linspace(-top, top, end - begin, device=rows.device))
    statistics.apply(rows, NOISE)


TEXTURES: tuple[Texture, ...] = (_few, _few, _few, _comb, _blocks, _trend)


def _small(draw: random.Random) -> float:
    return float(2.0 ** draw.uniform(*SMALL))


def _stretches(width: int, draw: random.Random) -> list[tuple[int, int]]:
    """(begin, end) of consecutive parts that cover a row."""
    cuts = sorted({0, width, *(draw.randrange(width) for _ in range(draw.randint(1, MOST_BLOCKS)))})
    return list(itertools.pairwise(cuts))
