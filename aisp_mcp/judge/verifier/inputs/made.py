"""Inputs that are any Python values: what the user's generator makes, texts, graphs and sparse matrices, in frames of
bytes of one size.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import torch

from aisp_mcp.bench import Benchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.values import HEAD, MADE_N, framed, unframed
from aisp_mcp.judge.verifier.checks import values

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ROOM, LEAST_ROOM = 2, 4096  # a frame holds so many times the largest of a few draws, and this many bytes more
FRAMES: dict[str, int] = {}  # bytes by input, once they are settled
SEEN: dict[str, int] = {}  # the largest so far


def frame(label: str, value: Any) -> torch.Tensor:
    """The value as an input of that name. Raises BenchmarkError MADE_LARGER, NOT_MADE."""
    if hasattr(value, "__next__"):
        value = list(value)
    try:
        data = pickle.dumps(value, protocol=5)
    except Exception as error:
        message = f"{label} is a {type(value).__name__}, which cannot be sent to another process: {error}."
        raise BenchmarkError("NOT_MADE", message) from error
    if values.OWN.encode() in data:
        message = f"{label} contains a class that the generator's file defines, and a candidate cannot see that file."
        raise BenchmarkError("NOT_MADE", message, "Define the class in a module that both functions import.")
    SEEN[label] = max(SEEN.get(label, 0), len(data))
    room = FRAMES.get(label, len(data) + HEAD)
    if len(data) + HEAD > room:
        message = f"The generator made {len(data)} bytes of {label} for one seed and at most {room // ROOM} for others."
        raise BenchmarkError("MADE_LARGER", message, "Let the size of the arguments depend less on the seed.")
    return torch.frombuffer(framed(data, room), dtype=torch.uint8)


def walked(held: torch.Tensor, eps: float, seed: int) -> torch.Tensor:
    """The frame of the same value with its floats off by a random walk of roundings, as those of a sum of all of them
    are (see walks.py).
    """
    import numpy

    value, draw, known = pickle.loads(unframed(held.numpy().tobytes()) or b""), numpy.random.default_rng(seed), {}
    off = 1.0

    def moved(item: Any) -> Any:
        nonlocal off
        if type(item) is float:
            off += eps * draw.uniform(-0.5, 0.5)
            return item * off
        if type(item) is tuple:
            return tuple(map(moved, item))
        if id(item) in known:  # as an edge of a graph is, from both of its ends
            return item
        known[id(item)] = item
        if isinstance(item, numpy.ndarray) and item.dtype.kind in "fc":
            walk = 1.0 + numpy.cumsum(draw.uniform(-0.5, 0.5, item.size)).reshape(item.shape) * eps
            item *= walk.astype(item.real.dtype)
        elif isinstance(item, list):
            item[:] = map(moved, item)
        elif isinstance(item, dict):
            item.update({key: moved(each) for key, each in item.items()})
        elif hasattr(item, "__dict__"):
            moved(vars(item))
        return item

    value = moved(value)
    return torch.frombuffer(framed(pickle.dumps(value, protocol=5), len(held)), dtype=torch.uint8)


def forget() -> None:
    """Begin anew: no input has a frame of a settled size."""
    FRAMES.clear()
    SEEN.clear()


def settle() -> None:
    """Fix the sizes of frames by what was drawn so far."""
    FRAMES.update({label: room_for(most) for label, most in SEEN.items()})


def room_for(most: int) -> int:
    """Bytes of a frame for values of which the largest of a few draws takes that many."""
    return (ROOM * most + LEAST_ROOM + HEAD + 63) // 64 * 64


def drawn(spec: Benchmark) -> Benchmark:
    """The specification, whose inputs its own generator makes if it names one."""
    if spec.make is not None:
        path, name = spec.make.rsplit(":", 1)
        n = int(getattr(spec, "n", MADE_N))
        spec.inputs = lambda rng: {"made": frame("made", call(path, name, rng.seed(), n))}  # type: ignore[method-assign]
    return spec


def call(path: str, name: str, seed: int, n: int) -> Any:
    """The arguments that the user's generator makes. Raises BenchmarkError MAKER_RAISED, OWN_FILE."""
    function: Callable[[int, int], Any] = values.loaded(path, name)
    try:
        made = function(seed, n)
    except Exception as error:
        raise BenchmarkError("MAKER_RAISED", f"{name} raised {values.where(error, path)}.") from error
    return made


def text(seed: int, n: int, alphabet: str = LETTERS + " ") -> str:
    """n characters."""
    return "".join(random.Random(seed).choices(alphabet, k=n))


def words(seed: int, n: int) -> list[str]:
    """n words, a few of them frequent, as in a language."""
    draw = random.Random(seed)
    known = ["".join(draw.choices(LETTERS, k=draw.randint(1, 10))) for _ in range(max(n // 8, 2))]
    return draw.choices(known, [1 / rank for rank in range(1, len(known) + 1)], k=n)


def lines(seed: int, n: int) -> str:
    """n lines of words."""
    draw = random.Random(seed)
    every = iter(words(draw.getrandbits(60), 8 * n))
    return "".join(" ".join(next(every) for _ in range(draw.randint(0, 8))) + "\n" for _ in range(n))


def json_like(seed: int, n: int) -> Any:
    """A nested value of about n parts, as JSON has them."""
    draw = random.Random(seed)

    def part(left: int, depth: int) -> Any:
        if left <= 1 or depth > 8:
            number = round(draw.uniform(-1e4, 1e4), 3)
            return draw.choice(
                (None, True, False, draw.randint(-(10**6), 10**6), number, text(draw.getrandbits(60), 8))
            )
        count = draw.randint(2, max(2, min(left, 12)))
        items = [part(left // count, depth + 1) for _ in range(count)]
        if draw.random() < 0.5:
            return items
        return {text(draw.getrandbits(60), 6, LETTERS): item for item in items}

    return {f"key{index}": part(max(n // 8, 1), 1) for index in range(8)}


def graph(seed: int, n: int, edges: int | None = None) -> Any:
    """A graph of networkx with n nodes and so many edges, with weights."""
    import networkx

    draw = random.Random(seed)
    made = networkx.gnm_random_graph(n, 4 * n if edges is None else edges, seed=draw.getrandbits(30))
    for one, other in made.edges:
        made[one][other]["weight"] = draw.random()
    return made


def sparse(seed: int, rows: int, columns: int, density: float = 0.01) -> Any:
    """A sparse matrix of scipy, in rows."""
    import numpy
    import scipy.sparse

    return scipy.sparse.random(rows, columns, density, format="csr", random_state=numpy.random.default_rng(seed))
