"""Arguments that a call changes, such as a list that is sorted in place."""

from __future__ import annotations

import array
import copy
import datetime
import functools
import pickle
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from aisp_mcp.judge import compare
from aisp_mcp.judge.protocol.changes import first_change


class Basket:
    __slots__ = ("__dict__", "owner")

    def __init__(self) -> None:
        self.items, self.owner, self._sum, self._sorted = [3, 4], "a", None, list[int]()
        self.parent = self

    @functools.cached_property
    def total(self) -> int:
        self._sum, self._sorted = sum(self.items), sorted(self.items)
        return self._sum


class Node:
    pass


VALUES: dict[str, Any] = {
    "list": [3, 1, 2, float("nan")],
    "rows": [[3, 1], [2, "a"]],
    "dict": {"a": [1], "b": {2, 3}},
    "nodes": {Node(): [1]},
    "ordered": OrderedDict(a=1, b=2),
    "default": defaultdict(list, a=[1]),
    "deque": deque([1, 2, 3]),
    "bytes": bytearray(b"ab"),
    "array": array.array("d", [1.0, 2.0]),
    "mixed": [datetime.date(2026, 1, 1), {1, (2, 3)}, array.array("d", [1.0]), [1]],
    "floats": numpy.array([3.0, numpy.nan, 1.0]),
    "objects": [numpy.arange(3.0)[::-1].copy(), (numpy.array([[1], "a"], object),)],
    "iterator": iter([1, 2, 3]),
    "random": random.Random(1),
    "generator": numpy.random.default_rng(1),
    "instance": Basket(),
}


@pytest.mark.parametrize(
    ("name", "call", "place"),
    [
        ("list", sorted, None),
        ("list", lambda a: a.sort(), "[0]"),
        ("list", lambda a: a.append(1), ""),
        ("rows", lambda rows: rows[1].reverse(), "[1][0]"),
        ("rows", lambda rows: rows.__setitem__(0, (3, 1)), "[0]"),
        ("dict", lambda d: d.update(b=d.pop("b"), a=d.pop("a")), None),
        ("dict", lambda d: d["b"].discard(2), "['b']"),
        ("dict", lambda d: d.pop("a"), ""),
        ("nodes", len, None),
        ("nodes", lambda d: next(iter(d.values())).__setitem__(0, 2), "[0]"),
        ("ordered", lambda d: d.move_to_end("a"), ""),
        ("default", lambda d: d["b"], None),
        ("default", lambda d: d["b"].append(1), ""),
        ("deque", lambda q: q.rotate(1), "[0]"),
        ("bytes", lambda b: b.reverse(), ""),
        ("array", lambda a: a.reverse(), ""),
        ("mixed", lambda a: a[3].append(2), "[3]"),
        ("floats", numpy.sort, None),
        ("floats", lambda a: a.sort(), ""),
        ("objects", lambda a: a[0].sort(), "[0]"),
        ("objects", lambda a: a[1][0][0].append(2), "[1][0][0]"),
        ("iterator", list, None),
        ("random", lambda r: r.random(), None),
        ("generator", lambda r: r.random(), None),
        ("instance", lambda basket: basket.total, None),
        ("instance", lambda basket: basket.items.pop(), ".items"),
        ("instance", lambda basket: setattr(basket, "owner", "b"), ".owner"),
    ],
)
def test_the_first_change_of_an_argument_is_found(name: str, call: Callable[[Any], Any], place: str | None) -> None:
    before, after = (pickle.loads(pickle.dumps(VALUES[name])) for _ in range(2))
    call(after)
    found = first_change(before, after)
    assert found is None if place is None else found is not None and found.endswith(place)


def test_changes_of_libraries_own_values_are_found() -> None:
    pandas, networkx = pytest.importorskip("pandas"), pytest.importorskip("networkx")
    sparse = pytest.importorskip("scipy.sparse")
    frame = pandas.DataFrame({"x": [2.0, 1.0, None], "y": ["a", "b", "c"]})
    graph = networkx.Graph([(1, 2, {"w": 0.5}), ("a", 2)])
    matrix = sparse.coo_matrix(([1, 2, 0], ([0, 0, 1], [1, 1, 0])))
    for value, keeping, changing in (
        (frame, lambda each: each.sort_values("x"), lambda each: each.update({"x": [1.0]})),
        (frame, lambda each: each.fillna(0.0), lambda each: each.insert(0, "z", 1)),
        (graph, lambda each: dict(each.degree), lambda each: each.nodes["a"].update(seen=True)),
        (graph, lambda each: each.subgraph([1, 2]), lambda each: each.edges[1, 2].update(w=1.0)),
        (matrix, lambda each: each.sum_duplicates(), lambda each: each.data.__imul__(2)),
    ):
        kept, changed = copy.deepcopy(value), copy.deepcopy(value)
        keeping(kept)
        changing(changed)
        assert (first_change(value, kept), first_change(value, changed) is not None) == (None, True)


def judged(folder: Path, baseline: str, candidate: str, inputs: str) -> str:
    for name, text in (("slow", baseline), ("fast", candidate)):
        (folder / f"{name}.py").write_text(text)
    found = compare(f"{folder}/slow.py:f", f"{folder}/fast.py:f", inputs=inputs, preset="quick")
    return f"{found.verdict}: {found.sentence}"


MIDDLE = "def f(a):\n    return sorted(a)[len(a) // 2]\n"
LISTED = "a=list(randint(0,1000,500))"


@pytest.mark.torch
def test_a_list_that_only_the_candidate_changes_is_named(tmp_path: Path) -> None:
    sentence = judged(tmp_path, MIDDLE, "def f(a):\n    a.sort()\n    return a[len(a) // 2]\n", LISTED)
    assert sentence.startswith("invalid: ")
    assert "the argument a[0] was changed; the baseline leaves it as it was" in sentence


@pytest.mark.torch
def test_what_the_baseline_leaves_in_a_list_is_part_of_its_answer(tmp_path: Path) -> None:
    counting = "def f(a):\n    kept = sorted({*a})\n    return len(kept)\n"
    sentence = judged(tmp_path, counting.replace("    return", "    a[:] = kept\n    return"), counting, LISTED)
    assert sentence.startswith("incorrect: ")
    assert "['a afterwards']" in sentence
