"""Inputs that are any Python values: what the user's generator makes, texts, graphs and sparse matrices, in frames of
bytes of one size.
"""

from __future__ import annotations

import pickle
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aisp_mcp.bench import Benchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.values import HEAD, MADE_N, framed, unframed
from aisp_mcp.judge.verifier.checks import values

LEAST_NODES = 3  # of a graph in which an edge can go elsewhere
LETTERS = "abcdefghijklmnopqrstuvwxyz"
OTHERS = LETTERS.upper() + string.digits + string.punctuation + "\t\n"
COMMON = ["the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not"]
ENDINGS = ("s", "ed", "er", "ing", "ly")
SEPARATORS = (" ", " ", "  ", "\t", ", ", "-", ". ", " 7_")
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


def near(value: Any, way: int | None) -> Any:
    """The value with another part in its middle, or two exchanged, as in draws/near.py. way: None to leave it; of a
    text or a list, a negative one rotates it.
    """
    if way is None or (isinstance(value, str | list | dict) and not value):
        return value
    if isinstance(value, str):
        return "".join(near([*value], way))
    if way < 0 and isinstance(value, list):
        return value[way % len(value) :] + value[: way % len(value)]
    if isinstance(value, list):
        return _near_items(value, way)
    if isinstance(value, dict):
        key = [*value][len(value) // 2]
        return {**value, key: near(value[key], way)}
    if isinstance(value, bool | int | float):
        return not value if isinstance(value, bool) else value * 2 + 1
    if hasattr(value, "adj") and len(value) > LEAST_NODES and value.edges:
        one, other = [*value.edges][len(value.edges) // 2]
        value[one][other]["weight"] *= 0.5
        if (free := next((node for node in value if node != one and node not in value[one]), None)) is not None:
            value.add_edge(one, free, **value[one][other])
            value.remove_edge(one, other)
    elif hasattr(value, "nnz") and value.nnz:
        value.data[value.nnz // 2] *= 0.5
    return value


def _near_items(items: list[Any], way: int) -> list[Any]:
    """The items with one of the middle in place of another that is unlike it, or exchanged with it."""
    middle = range(len(items) // 4, len(items) - len(items) // 4)
    at = next((at for at in middle if items[at] != "\n"), None)
    other = next((to for to in middle if at is not None and items[to] not in (items[at], "\n")), None)
    if at is None or other is None:
        return items
    items = [*items]
    if not isinstance(items[at], str):
        items[at] = near(items[at], way)
    elif way % 3 == 1:
        items[at], items[other] = items[other], items[at]
    else:
        items[at] = items[other]
    return items


def text(seed: int, n: int, alphabet: str = "", kind: str = "plain") -> str:
    """n characters. Without an alphabet, they are letters and blanks, and of the other kinds any of ASCII."""
    known = alphabet or LETTERS + " " * (1 if kind == "plain" else 8) + ("" if kind == "plain" else OTHERS)
    return "".join(_chosen(random.Random(seed), known, n, kind))


def words(seed: int, n: int, kind: str = "plain") -> list[str]:
    """n words as in a language: a few are frequent, some of these are the same for all seeds, and some words begin with
    another. Of the other kinds, some begin with a capital as well.
    """
    draw = random.Random(seed)
    common = COMMON[: max(n // 24, 1)]
    stems = ["".join(draw.choices(LETTERS, k=draw.randint(1, 10))) for _ in range(max(n // 16, 1))]
    known = [*draw.sample(common, len(common)), *stems, *(stem + draw.choice(ENDINGS) for stem in stems)]
    if kind != "plain":
        known = [each for word in known for each in {word: 0, draw.choice((word, word.title())): 0}]
    return _chosen(draw, known, n, kind, [1 / rank for rank in range(1, len(known) + 1)])


def lines(seed: int, n: int, kind: str = "plain") -> str:
    """n lines of words. Of the other kinds, they may have several separators, begin or end with one, and be many empty
    ones, equal, or without an end.
    """
    draw = random.Random(seed)
    every = iter(words(draw.getrandbits(60), 8 * n, "plain" if kind == "plain" else "mixed"))
    between = (" ",) if kind == "plain" else SEPARATORS
    made = ["".join(next(every) + draw.choice(between) for _ in range(draw.randint(0, 8))) for _ in range(n)]
    if kind == "plain":
        return "".join(line.rstrip(" ") + "\n" for line in made)
    if kind in ("zeros", "tiny", "constant"):  # n of the longest do not fit the frame that plain texts settle
        usual = 1.5 * sum(map(len, made)) / n
        made = [line for line in made if len(line) <= usual]
    return "\n".join(_chosen(draw, ["", *made], n, kind)) + draw.choice(("", "\n"))


def _chosen(
    draw: random.Random, known: Sequence[str], n: int, kind: str, weights: Sequence[float] | None = None
) -> list[str]:
    """n of these; of the other kinds as integers: sorted, some of them several times in a row, mostly the same, only
    two, or all equal.
    """
    if kind in ("tiny", "constant"):
        known, weights = draw.choices(known, k=2 if kind == "tiny" else 1), None
    items = draw.choices(known, weights, k=n)
    if kind == "exact":
        items.sort(reverse=draw.random() < 0.5)
    elif kind == "spikes":
        items = [item for item in items for _ in range(draw.choice((1, 1, 2, 3)))][:n]
    elif kind == "zeros":
        most = draw.choice(known)
        items = [most if draw.random() < 0.9 else item for item in items]
    return items


def json_like(seed: int, n: int) -> Any:
    """A nested value of about n parts, as JSON has them."""
    draw = random.Random(seed)

    def part(left: int, depth: int) -> Any:
        if left <= 1 or depth > 8:
            number = round(draw.uniform(-1e4, 1e4), 3)
            return draw.choice(
                (None, True, False, draw.randint(-(10**6), 10**6), number, text(draw.getrandbits(60), 8), [], {})
            )
        count = draw.randint(2, max(2, min(left, 12)))
        items = [part(left // count, depth + 1) for _ in range(count)]
        if draw.random() < 0.5:
            return items
        return {text(draw.getrandbits(60), 6, LETTERS): item for item in items}

    return {f"key{index}": part(max(n // 8, 1), 1) for index in range(8)}


def graph(seed: int, n: int, edges: int | None = None, kind: str = "plain") -> Any:
    """A graph of networkx with n nodes and so many edges, with weights; of one other kind, in many parts."""
    import networkx

    draw = random.Random(seed)
    count = 4 * n if edges is None else edges
    made = networkx.gnm_random_graph(n, min(count, n // 2) if kind == "zeros" else count, seed=draw.getrandbits(30))
    for one, other in made.edges:
        made[one][other]["weight"] = draw.random()
    return made


def sparse(seed: int, rows: int, columns: int, density: float = 0.01, kind: str = "plain") -> Any:
    """A sparse matrix of scipy, in rows, of normal values; of one other kind, with many empty rows."""
    import numpy
    import scipy.sparse

    draw = numpy.random.default_rng(seed)
    share = min(density, 0.5 / columns) if kind == "zeros" else density
    return scipy.sparse.random(rows, columns, share, format="csr", random_state=draw, data_rvs=draw.standard_normal)
