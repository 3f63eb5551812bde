"""Linear dependence of masks over GF(2): finds masks that are sums of a few old ones and resemble none of them.

The signs of a draw are cut into blocks, which are bit vectors. Random vectors are independent until there are nearly as
many as they have bits. Blocks that are exclusive-ors of rows of a pool are dependent as soon as there are more of them
than rows in the pool, whichever rows are combined. Blocks of earlier calls count too.
"""

from __future__ import annotations

import random
from typing import Any

SPARE = 64  # bits beyond the number of vectors: random ones are dependent with probability 2**-64
BY_CHANCE = 2  # blocks of inputs that are nearly all zeros have few bits, or none
MOST_BITS, LEAST_BITS = 1024, 128
ROWS_OF_CALL, ROWS_OVER_CALLS = 192, 8  # blocks of each call for the two tests


class Span:
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


class Ranks:
    """Dependent blocks of the candidate and of the baseline, within each call and over all calls."""

    def __init__(self) -> None:
        self._offset = random.random()  # of the rows that are compared over all calls
        self._over_calls = [Span(), Span()]

    def failure(self, signs: list[Any], row: int) -> str | None:
        """Describe a dependence that the baseline's signs do not show, or return None. signs: of the candidate and of
        the baseline. row: length of a tensor's rows, because repeated masks most often begin at a row.
        """
        stride = row if row >= LEAST_BITS else MOST_BITS
        width, rows = min(stride, MOST_BITS), len(signs[0]) // stride
        if not rows:
            return None
        if max(map(len, self._over_calls)) + ROWS_OVER_CALLS > width - SPARE:
            self._over_calls = [Span(), Span()]
        number = min(rows, ROWS_OVER_CALLS)
        begin = int(self._offset * (rows - number + 1))
        problem = _more("earlier ones", signs, self._over_calls, (begin, number, stride, width))
        number = min(rows, ROWS_OF_CALL, width - SPARE)
        begin = random.randrange(rows - number + 1)
        return problem or _more("others", signs, [Span(), Span()], (begin, number, stride, width))


def _more(words: str, signs: list[Any], spans: list[Span], where: tuple[int, int, int, int]) -> str | None:
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
