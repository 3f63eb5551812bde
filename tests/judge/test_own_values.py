"""Functions on any Python values, with a generator, a checker and tolerances of the user's own."""

from __future__ import annotations

import fractions
import math
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from harness_support import judge

from aisp_mcp.bench import Answers
from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge import compare
from aisp_mcp.judge.candidate import calling
from aisp_mcp.judge.evidence import APART, NOT_SINGLE
from aisp_mcp.judge.protocol.values import UnknownValueError, decode, encode, framed, is_plain, unframed
from aisp_mcp.judge.verifier import settling
from aisp_mcp.judge.verifier.checks import precision, values
from aisp_mcp.judge.verifier.inputs import made

SLOW = """
def distinct(items):
    found = []
    for item in items:
        if item not in found:
            found.append(item)
    return sorted(found)
"""
FAST = "def distinct(items):\n    return sorted(set(items))\n"
WRONG = "def distinct(items):\n    return sorted(set(items))[1:]\n"
GENERATOR = """
import random

def make(seed, n):
    draw = random.Random(seed)
    return [str(draw.randint(0, 9_999)) for _ in range(n)]

def varying(seed, n):
    return [random.random() for _ in range(n)]

def raising(seed, n):
    return [n / 0]

def two(seed, n):
    return [n], seed
"""
CHECKER = """
def is_solution(items, answer):
    return isinstance(answer, list) and answer == sorted(set(items))

def lax(items, answer):
    return all(item in items for item in answer)

def raising(items, answer):
    return answer.missing

def asserting(items, answer):
    assert answer

def in_any_order(items, answer):
    return isinstance(answer, list) and sorted(answer) == sorted(set(items))
"""
# Tells in its error what it can find of the user's files.
SPY = """
import os, sys
found = [name for name in sys.modules if name.startswith("aisp_own") or name.startswith("aisp_mcp.judge.verifier")]
for folder in {folders}:
    for parent, _, names in os.walk(folder):
        for name in names:
            if name in ("generator.py", "checker.py"):
                try:
                    found.append(open(os.path.join(parent, name)).read()[:20])
                except OSError:
                    pass

def distinct(items):
    raise RuntimeError("found " + repr(found))
"""


@dataclass
class Point:
    x: float
    name: str


VALUES: list[Any] = [
    None, True, 0, -(2**80), 1.5, -0.0, math.inf, 2 + 3j, "aé\ud800", b"\x00\xff", [], (), {}, set(),
    [1, "a", None], (1.0,), {"a": [1, 2], 3: (4,)}, {1, "b", (2, 3)}, list(range(100)), [0.1] * 50, ["a"] * 20,
    [[1, 2], [3]], numpy.arange(6.0).reshape(2, 3), numpy.array(["a", "bc"]), numpy.array(3.0),
    numpy.array(["1960-01-01", "NaT"], "M8[h]"), numpy.array([(1, "a", 0.5)], [("n", "i4"), ("id", "U2"), ("x", "f8")]),
]  # fmt: skip


def test_arrays_that_torch_has_no_view_of_are_copied() -> None:
    """A reversed one is what `x[::-1]` returns."""
    array = numpy.arange(6.0).reshape(2, 3)[:, ::-1]
    assert calling.tensors(array).tolist() == array.tolist()
    steps = calling.Steps(lambda: ((), {}), lambda: None, False)
    assert [each.tolist() for each in steps.tensors_of_calls([array, array])] == [array.tolist()] * 2


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_read_as_they_were_written(value: Any) -> None:
    found = decode(encode(value))
    assert values.difference(value, found, 0.0, 0.0) is None
    if not isinstance(value, numpy.ndarray):
        assert (type(found), found) == (type(value), value)


def test_integers_that_no_float_and_no_text_holds_are_compared() -> None:
    large, larger = [0.5, 10**400], [0.5, 10**5000]
    for value in (large, larger, {"a": 1.5, "b": 10**400}, 10**5000):
        assert values.difference(value, value, 1e-9, 0.0) is None
    assert "at [1] is not 1000" in str(values.difference(large, [0.5, 10**400 + 1]))
    assert values.difference(10**5000, 2**20000) == "int of 20001 bits is not int of 16610 bits"
    assert precision.measures(larger, larger)[APART] == 0.0
    assert calling.tensors(larger)["floats"].tolist() == [0.5]


def test_values_of_libraries_are_read_and_compared() -> None:
    networkx, sparse = pytest.importorskip("networkx"), pytest.importorskip("scipy.sparse")
    graph = networkx.Graph([(1, 2, {"w": 0.5}), ("a", 2)])
    same = networkx.Graph([(2, "a"), (2, 1, {"w": 0.5})])
    assert values.difference(decode(encode(graph)), decode(encode(same))) is None
    same[1][2]["w"] = 0.75
    assert "0.75 at edges" in str(values.difference(decode(encode(graph)), decode(encode(same))))
    matrix = sparse.csr_matrix(numpy.eye(3))
    assert values.difference(decode(encode(matrix)), decode(encode(sparse.coo_matrix(matrix)))) is None
    for form in (sparse.csc_matrix, sparse.coo_array):  # a checker may ask for the format that a task names
        assert type(decode(encode(form(matrix)))) is form
    other = decode(encode(sparse.csr_matrix(2 * numpy.eye(3))))
    assert "elements at data differ" in str(values.difference(decode(encode(matrix)), other))


def test_series_and_frames_are_compared_by_columns_and_labels() -> None:
    pandas = pytest.importorskip("pandas")
    means = pandas.Series([1.5, 2.5], index=["a", "b"])
    assert values.difference(decode(encode(means)), decode(encode(means.copy()))) is None
    assert "'c' at ['.index'][1]" in str(
        values.difference(decode(encode(means)), decode(encode(means.rename({"b": "c"}))))
    )
    frame = pandas.DataFrame({"x": [1, 2], "y": [0.5, 1.5]})
    assert "at ['y'] differ" in str(values.difference(decode(encode(frame)), decode(encode(frame.assign(y=1.0)))))
    assert encode(frame.set_index([[0, 1]])) == encode(frame)
    assert encode(frame.set_index(pandas.RangeIndex(5, 7))) != encode(frame)


def test_a_mask_is_a_part_of_an_array() -> None:
    one, other = (numpy.ma.masked_greater(numpy.array([1.0, 2.0, value]), 2.5) for value in (3.0, 4.0))
    assert encode(one) == encode(other)
    assert values.difference(decode(encode(one)), decode(encode(numpy.ma.array([1.0, 2.0, 0.0])))) is not None


def test_records_scalars_and_iterators_are_compared_by_what_they_hold() -> None:
    point = decode(encode(Point(1.5, "a")))
    assert (point.x, point.name) == (1.5, "a")
    assert values.difference(point, decode(encode(Point(1.5, "b")))) == "'b' at ['name'] is not 'a'"
    half = encode(fractions.Fraction(1, 2))
    assert values.difference(decode(half), decode(encode(fractions.Fraction(1, 3)))) is not None
    sympy = pytest.importorskip("sympy")
    assert decode(encode([sympy.Integer(3)])) == [3]
    x = sympy.Symbol("x")
    assert values.difference(decode(encode(x + 1)), decode(encode(1 + x))) is None
    assert values.difference(decode(encode(x + 1)), decode(encode(x + 2))) is not None
    assert decode(encode(item for item in (1, 2))) == decode(encode(range(1, 3))) == [1, 2]
    with pytest.raises(UnknownValueError, match="function"):
        encode(encode)


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        ([1, 2], [1, 3], "3 at [1] is not 2"),
        ([1, 2], (1, 2), "is a tuple, the baseline's is a list"),
        ([1, 2], [1], "1 items, the baseline has 2"),
        ({"a": 1}, {"b": 1}, "is only in"),
        (1, True, "is a bool"),
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], "differ, the first at [1]"),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1e-6}, "1e-06 at 'b' is not 0.0"),
        (1.0, 1, ""),
        (math.nan, math.nan, ""),
        (numpy.ones(3), numpy.ones(4), "has the shape"),
        (numpy.ones(3), numpy.float32(1) * numpy.ones(3, "float32") * numpy.float32(1 + 1e-6), "differ"),
        (numpy.ones(3, int), numpy.ones(3), "is of float64"),
        (numpy.array([]), numpy.array([], int), ""),
        ([], numpy.array([], int), ""),  # an empty column of objects
        ([], numpy.zeros((0, 2)), "is a ndarray, the baseline's is a list"),
        (numpy.array([3], "M8[h]"), numpy.array([4], "M8[h]"), "1 of 1 elements of an array differ"),
        (numpy.zeros(2, [("n", "i8"), ("x", "f8")]), numpy.ones(2, [("n", "i8"), ("x", "f8")]), "at ['n'] differ"),
        (numpy.zeros(2, [("n", "i8")]), numpy.zeros(2, [("m", "i8")]), "the fields ('m',)"),
    ],
)
def test_the_first_difference_is_named(expected: Any, found: Any, words: str) -> None:
    message = values.difference(expected, found)
    assert bool(message) == bool(words)
    assert words in (message or "")


def test_floats_are_gathered_by_place() -> None:
    rows = [{"at": 1, "x": 0.5, "y": [1.0, 2]}, {"at": 2, "x": 1.5, "y": [3.0, 4.0]}, (5.0,)]
    same = [{"y": [1, 2.25], "x": 0.75, "at": 1}, {"at": 2, "x": 1.5, "y": [3.0, 4.0]}, (5.0,)]
    found = values.floats(rows, same)
    assert not isinstance(found, str)
    assert {at: place.found.tolist() for at, place in found.items()} == {
        "[…]['x']": [0.75, 1.5],
        "[…]['y'] of 2 float64": [[1.0, 2.25], [3.0, 4.0]],
        "[2]": [5.0],
    }
    assert values.floats(rows, rows[:1]) == "1 items, the baseline has 3"


def test_a_walk_moves_every_float_once() -> None:
    kept = made.frame("moved", value := ([1.0, 2], {"a": (3.0, "b")}, numpy.ones(3), 4))
    made.forget()
    moved = pickle.loads(unframed(made.walked(kept, 1e-3, seed=1).numpy().tobytes()) or b"")
    found = values.floats(value, moved)
    assert not isinstance(found, str)
    apart = numpy.concatenate([(place.found / place.expected - 1).ravel() for place in found.values()])
    assert 0 < abs(apart).max() < 5e-3
    assert len({*apart.tolist()}) == 6  # one integer in a list of floats stays


def test_tolerances_are_those_of_allclose() -> None:
    assert values.difference(2.0, 2.0 + 3e-6, rtol=1e-6) is not None
    assert values.difference(2.0, 2.0 + 1e-6, rtol=1e-6) is None
    assert values.difference([0.0, 1.0], [1e-9, 1.0], rtol=1e-6) is not None
    assert values.difference([0.0, 1.0], [1e-9, 1.0], rtol=1e-6, atol=1e-8) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x02\x00\x00\x00[]", b"\x05\x00\x00\x00[9e9]", encode([1, 2])[:-2], b"\xff" * 40]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


def test_frames_have_one_size_and_say_when_a_value_does_not_fit() -> None:
    assert unframed(bytes(framed(b"abc", 64))) == b"abc"
    assert unframed(bytes(framed(b"abc" * 64, 64))) is None
    for first in (b"a longer one", b"abc" * 64):
        for data in (b"abc", b"abc" * 64):
            assert framed(data, 64, framed(first, 64)) == framed(data, 64)


def test_large_frames_get_memory_that_no_output_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calling.VALUES, "capacity", 2 << 20)
    steps = calling.ValueSteps(lambda: ((), {}), lambda: None, False)
    kept, other = (steps.tensors(numpy.full(9, value)) for value in (1.0, 2.0))
    places = {kept.data_ptr(), other.data_ptr()}
    del other
    again = steps.tensors(numpy.full(9, 3.0))
    assert {kept.data_ptr(), again.data_ptr()} == places
    assert values.read(kept)[0] == 1.0
    assert values.read(again)[0] == 3.0


def test_only_values_without_work_left_are_plain() -> None:
    class Lazy(list[int]):
        pass

    assert all(map(is_plain, ([1, {"a": (2.0, None)}, numpy.ones(2)], *VALUES[-2:])))  # times and columns
    assert not any(map(is_plain, (Lazy(), [Lazy()], {"a": Lazy()}, (item for item in ()), [[1], range(3)])))


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed, n: made.text(seed, n, "ab"),
        made.words,
        made.lines,
        made.json_like,
        lambda seed, n: sorted(made.graph(seed, n, 2 * n).edges),
        lambda seed, n: made.sparse(seed, n, n, 0.1).toarray().tolist(),
    ],
    ids=["text", "words", "lines", "json_like", "graph", "sparse"],
)
def test_makers_follow_their_seed(draw: Callable[[int, int], Any]) -> None:
    assert draw(1, 40) == draw(1, 40)
    assert draw(1, 40) != draw(2, 40)


@pytest.mark.parametrize("kind", ["plain", "exact", "spikes"])
def test_words_occur_in_other_lists_and_begin_others(kind: str) -> None:
    one, other = (set(made.words(seed, 60, kind)) for seed in (1, 2))
    assert one & other != one
    assert one & other
    assert any(a != b and b.startswith(a[:4]) and len(a) > 3 for a in one for b in one)
    assert len({word.lower() for word in one}) < len(one) or kind == "plain"


def test_lines_that_are_repeated_fit_the_frame_that_plain_ones_settle() -> None:
    room = made.room_for(max(len(made.lines(seed, 1000)) for seed in range(4)))
    drawn = [made.lines(seed, 1000, "constant") for seed in range(40)]
    assert max(map(len, drawn)) < room


CASES = [([3, 1, 2], [1.1, 2.2, 3.3]), ([5, 4], [4.4, 5.5]), ([9, 8, 7], [7.7, 8.8, 9.9])]


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda answer, expected: True, "accepts None"),
        (lambda answer, expected: answer is not None, "accepts an empty answer: [] in place of [1.1, 2.2, 3.3]"),
        (lambda answer, expected: len(answer) == len(expected), "accepts zeros"),
        (lambda answer, expected: bool(answer) and sorted(answer) == answer and answer[0] > 0, "to other inputs"),
        (lambda answer, expected: numpy.allclose(answer, expected, rtol=0.01), "rounded to half"),
        (lambda answer, expected: numpy.allclose(answer, expected, rtol=1e-6), ""),
    ],
)
def test_a_checker_that_accepts_nonsense_is_refused(check: Callable[[Any, Any], bool], words: str) -> None:
    def judged(_: Any, expected: Any, found: Any) -> str | None:
        try:
            return None if check(found, expected) else "no"
        except Exception as error:
            raise BenchmarkError("CHECKER_RAISED", "it raised") from error

    if not words:
        assert not settling.try_out(judged, "check", CASES)
        return
    with pytest.raises(BenchmarkError, match="so it cannot decide") as refused:
        settling.try_out(judged, "check", CASES)
    assert words.partition(":")[0] in refused.value.message
    assert words.partition(": ")[2] in refused.value.message


def test_a_checker_that_accepts_nan_alone_gets_none(tmp_path: Path) -> None:
    body = "return bool(found) and not max(abs(a - b) for a, b in zip(found, expected)) > 1e-6"
    (tmp_path / "near.py").write_text(f"def near(expected, found):\n    {body}\n")
    cases = [(answer, answer) for _, answer in CASES]
    answers = Answers((str(tmp_path / "near.py"), "near"))
    assert settling.try_out(values.checked(answers), "near", cases)
    check, expected = values.checked(replace(answers, refuses_nan=True)), cases[0][1]
    assert [check(expected, expected, [*expected[:2], last]) is None for last in (3.3, 3.4, math.nan)] == [
        True,
        False,
        False,
    ]
    assert check(expected, [math.nan], expected) is None  # where the baseline has some, the checker decides
    for value in (math.nan, {"a": [1, (2.0, math.nan)]}, numpy.array([1, math.nan]), [numpy.array([[1j, math.nan]])]):
        assert (values.has_nan(value), values.has_nan(str(value))) == (True, False)


X = numpy.random.default_rng(3).standard_normal(40)
SINGLE = X.astype("float32")


@pytest.mark.parametrize(
    ("expected", "found", "is_single"),
    [
        ({"a": X.tolist(), "b": 1}, {"a": SINGLE.tolist(), "b": 1}, True),
        ([X[:20], [X[20:] * 1j]], [SINGLE[:20], [SINGLE[20:] * numpy.complex64(1j)]], True),
        (float(X[0]), float(SINGLE[0]), True),
        (X, X * (1 + 1e-15), False),
        (X, numpy.append(SINGLE[1:], X[0]), False),  # one of them is not
        (SINGLE.astype("float64"), SINGLE, False),  # nor are the baseline's more precise
        ([0.1 + 0.2, 1 - 1e-12, 7.0], [0.25, 1.0, 7.0], False),  # exact numbers rather than rounded ones
        ([123456.00000001], [123456.0], False),
        (["a", 3], ["a", 3], False),
    ],
)
def test_answers_of_single_precision_are_recognised(expected: Any, found: Any, is_single: bool) -> None:
    assert (precision.measures(expected, found).get(NOT_SINGLE, 1.0) == 0.0) == is_single


def test_the_distance_of_answers_is_a_share_of_the_largest() -> None:
    found = precision.measures([X, {"b": 1.0, "a": 2.0}], [X + 1e-7 * X.max(), {"a": 2.0, "b": 1.0}])
    assert 0.3e-7 < found[APART] < 1.1e-7
    assert APART not in precision.measures([X], [X[1:]])


def test_a_checker_must_accept_the_baseline() -> None:
    with pytest.raises(BenchmarkError, match="refuses the baseline's own answer: odd"):
        settling.try_out(lambda *_: "odd", "check", CASES)
    assert values.checked(Answers(rtol=1e-3))(None, 1.0, 1.0005) is None


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_quick: None) -> Path:
    for name, text in {"slow": SLOW, "fast": FAST, "wrong": WRONG, "generator": GENERATOR, "checker": CHECKER}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(candidate: str, **given: Any) -> Any:
    inputs = {"inputs": "n=1000", "make": "generator.py:make"}
    return compare("slow.py", candidate, preset="quick", **{**inputs, **given})


NOTED = """

def _noted(function):
    import os

    def call(*args):
        try:
            with open({!r}, "a") as file:
                file.write(f"{{os.getpid()}} {{function.__name__}}\\n")
        except OSError:  # in a program's process
            pass
        return function(*args)

    return call


{} = _noted({})
"""


@pytest.mark.torch
def test_functions_on_texts_are_judged_by_the_users_checker(pair: Path) -> None:
    for name, function in {"slow": "distinct", "generator": "make", "checker": "in_any_order"}.items():
        with (pair / f"{name}.py").open("a") as file:
            file.write(NOTED.format(str(pair / "calls.txt"), function, function))
    (pair / "fast.py").write_text(FAST.replace("sorted", "list"))
    faster = judged("fast.py", check="checker.py:in_any_order")
    assert faster.verdict not in ("incorrect", "invalid")
    assert faster.sentence.endswith("answers judged by your in_any_order of checker.py")
    calls = Counter((pair / "calls.txt").read_text().splitlines())
    verifier = next(line.split()[0] for line in calls if line.endswith("in_any_order"))
    checked, answered = (calls[f"{verifier} {name}"] for name in ("in_any_order", "distinct"))
    assert answered < 1.2 * checked  # once for each answer, and a few times to open


CLASS = """
    from aisp_mcp.bench import Benchmark
    from slow import distinct

    class Distinct(Benchmark):
        make = "generator.py:make"
        check = "checker.py:{}"
        n = 200
        def run(self, items):
            return distinct(items)
"""
NORMS = """
    import math
    from aisp_mcp.bench import Benchmark

    class Norms(Benchmark):
        {} = {}
        def inputs(self, rng):
            return {{"x": rng.randn(20, 4, dtype="float64")}}
        def run(self, x):
            return [math.sqrt(sum(v * v for v in row)) for row in x.tolist()]
"""


@pytest.mark.torch
def test_a_pairs_class_takes_the_same_names(pair: Path) -> None:
    run = f"\ndef run(items):\n    return distinct(items)\n{SPY.replace('{folders}', repr([str(pair)]))}"
    (pair / "pyproject.toml").touch()  # both programs may import the project's modules
    wrong = judge(pair, WRONG.replace("distinct(", "run("), CLASS.format("is_solution"))
    assert (wrong.verdict, "is_solution of checker.py refused it" in wrong.sentence) == ("incorrect", True)
    assert wrong.disclosed["judged_by"] == "answers judged by your is_solution of checker.py"
    spied = judge(pair, run, CLASS.format("is_solution"))
    assert wrong.isolation == "L1" or "found []" in spied.sentence
    for name, code in (("lax", "CHECKER_ACCEPTS"), ("gone", "OWN_FILE")):
        with pytest.raises(BenchmarkError) as refused:
            judge(pair, FAST, CLASS.format(name))
        assert refused.value.code == code


@pytest.mark.torch
@pytest.mark.parametrize(("name", "value", "is_close"), [("rtol", 1e-4, True), ("atol", 1e-12, False)])
def test_a_pairs_class_takes_a_tolerance(tmp_path: Path, name: str, value: float, is_close: bool) -> None:
    found = judge(tmp_path, "def run(x):\n    return x.float().norm(dim=1).tolist()\n", NORMS.format(name, value))
    assert (found.verdict != "incorrect") == is_close
    assert f"; floats compared within your {name} {value:g}" in found.sentence
    assert ("; all numbers of its answers are of float32, and the baseline's are not" in found.sentence) == is_close


CENTRAL = """
import networkx

def central(G):
    lengths = networkx.single_source_shortest_path_length
    return {node: 1.0 / sum(lengths(G, node).values()) for node in G if G.degree(node)}
"""


@pytest.mark.torch
def test_answers_about_graphs_may_have_other_keys_in_each_call(pair: Path) -> None:
    pytest.importorskip("networkx")
    (pair / "slow.py").write_text(CENTRAL)
    (pair / "wrong.py").write_text(CENTRAL.replace("1.0 /", "(1.0 + 1e-6) /"))
    found = compare("slow.py", "wrong.py", inputs="G=graph(60, 80)", preset="quick")
    assert found.verdict == "incorrect"
    assert "on plain inputs" in found.sentence


@pytest.mark.torch
def test_a_candidate_finds_neither_generator_nor_checker(pair: Path) -> None:
    (pair / "spy.py").write_text(SPY.replace("{folders}", repr([str(pair)])))
    found = judged("spy.py", check="checker.py:is_solution", folder=pair)
    if found.disclosed.get("isolation", "L2") != "L1":
        assert "found []" in found.sentence


@pytest.mark.torch
@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"make": "generator.py:varying"}, "MAKER_VARIES", "different arguments for one seed"),
        ({"make": "generator.py:raising"}, "MAKER_RAISED", "ZeroDivisionError in line 12 of generator.py"),
        (
            {"make": "generator.py:two"},
            "MADE_OTHERS",
            r"2 argument\(s\) \(list, int\), and the baseline takes \(items\)",
        ),
        ({"check": "checker.py:asserting"}, "CHECKER_REFUSES", "refused it: it returned None, not True"),
        ({"check": "checker.py:raising"}, "CHECKER_RAISED", "AttributeError in line 9 of checker.py"),
        ({"check": "checker.py:lax"}, "CHECKER_ACCEPTS", "lax accepts an empty answer"),
    ],
)
def test_what_cannot_decide_is_refused_in_a_sentence(pair: Path, given: dict[str, str], code: str, words: str) -> None:
    with pytest.raises(BenchmarkError, match=words) as refused:
        judged("fast.py", **given)
    assert refused.value.code == code


def test_a_generator_takes_only_a_size(pair: Path) -> None:
    with pytest.raises(UsageError, match="only n is left"):
        judged("fast.py", inputs="x=randn(3)")


def test_nested_values_with_empty_parts_can_be_changed() -> None:
    for seed in range(60):
        assert made.near(made.json_like(seed, 200), seed).keys() == made.json_like(seed, 200).keys()
    assert made.near({"a": {}}, 1) == {"a": {}}
    assert made.near([], -1) == []
