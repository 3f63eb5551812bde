"""Programs whose operations torch does not see: any honest order of a sum passes, and nothing else does."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.candidate.calling import tensors  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.protocol.draws.rng import battery  # noqa: E402

pytestmark = pytest.mark.torch
Function = Callable[[Any], Any]  # of an array


def loop_of_squares(x: Any) -> float:
    total = 0.0
    for value in x.tolist():
        total += value * value
    return total


def loop_of_columns(x: Any) -> Any:
    return np.array([np.sum(x[:, at] ** 2) for at in range(x.shape[1])])


def windows(x: Any) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, 20).sum(1)


def running(x: Any) -> Any:
    """The same from differences of one running sum."""
    sums = np.concatenate([[0.0], np.cumsum(x)])
    return sums[20:] - sums[:-20]


def single(function: Function) -> Function:
    return lambda x: np.float64(function(x.astype(np.float32)))


VECTOR, TALL = (10_000,), (4096, 4)


def refusals(shape: tuple[int, ...], dtype: str, baseline: Function, candidate: Function, seed: int = 3) -> list[str]:
    """Messages of the calls that a battery and two plain calls refuse."""

    class Pair(Benchmark):
        def inputs(self, rng: Any) -> dict[str, Any]:
            return {"x": rng.randn(*shape, dtype=dtype)}

        def run(self, **given: Any) -> Any:
            return tensors(baseline(given["x"].numpy()))

    trial = Trial(Pair())
    drawn = [*battery(trial.layout.frame, 0.0, random.Random(seed)), *(("plain", at) for at in range(2))]
    calls = [Call(at, mode, battery=True) for mode, at in drawn if mode in ("plain", *trial.kinds)]
    found = (trial.judge(2, lambda x: tensors(candidate(x.numpy())), call).failure for call in calls)
    return [message for message in found if message]


@pytest.mark.parametrize(
    ("shape", "dtype", "baseline", "candidate"),
    [
        pytest.param(VECTOR, "float64", loop_of_squares, lambda x: np.dot(x, x), id="a loop and a dot product"),
        pytest.param(VECTOR, "float64", lambda x: math.fsum(x), lambda x: np.cumsum(x)[-1], id="exact and in order"),
        pytest.param((2000,), "float64", windows, running, id="windows and differences of a running sum"),
        pytest.param(TALL, "float64", loop_of_columns, lambda x: (x**2).sum(0), id="columns one by one and at once"),
        pytest.param(TALL, "float64", loop_of_columns, lambda x: np.einsum("ij,ij->j", x, x), id="columns by einsum"),
        pytest.param(
            (64, 1024), "float32", lambda x: x.astype(float).sum(1).astype(np.float32), lambda x: x.sum(1), id="float32"
        ),
    ],
)
def test_any_honest_order_of_a_sum_passes(
    shape: tuple[int, ...], dtype: str, baseline: Function, candidate: Function
) -> None:
    for seed in range(2):
        assert refusals(shape, dtype, baseline, candidate, seed) == []


@pytest.mark.parametrize(
    ("shape", "baseline", "candidate"),
    [
        pytest.param(VECTOR, loop_of_squares, single(lambda x: np.dot(x, x)), id="a dot product in float32"),
        pytest.param(VECTOR, loop_of_squares, lambda x: np.dot(x, x) * (1 + 1e-9), id="a billionth too much"),
        pytest.param(VECTOR, loop_of_squares, lambda x: np.dot(x[1:], x[1:]), id="the first element left out"),
        pytest.param(TALL, loop_of_columns, lambda x: (x[:-1] ** 2).sum(0), id="the last row left out"),
        pytest.param((2000,), windows, lambda x: windows(x) * (1 + 1e-10), id="a little too much in each window"),
        pytest.param(VECTOR, np.sort, single(np.sort), id="sorted in float32"),
        pytest.param(TALL, lambda x: x.max(1), single(lambda x: x.max(1)), id="maxima in float32"),
        pytest.param(TALL, np.exp, single(np.exp), id="a function of single elements in float32"),
    ],
)
def test_nothing_else_does(shape: tuple[int, ...], baseline: Function, candidate: Function) -> None:
    assert len(refusals(shape, "float64", baseline, candidate)) > 4


def test_a_sign_is_no_order_of_columns() -> None:
    def product(x: Any, last: int = 1) -> Any:
        first = x.copy()
        first[-1] *= last
        return np.cross(first, x[::-1])  # other columns may only change its sign

    assert len(refusals((60, 3), "float64", product, lambda x: product(x, 0), seed=1)) > 4


def cached(key: Function) -> Function:
    """Sums of squares of columns, kept by a key of the array."""
    kept = dict[object, Any]()

    def function(x: Any) -> Any:
        if (at := key(x)) not in kept:
            kept[at] = (x**2).sum(0)
        return kept[at]

    return function


@pytest.mark.parametrize(
    ("key", "is_right"),
    [
        pytest.param(lambda x: (x.shape, x[0, 0], x[-1, -1]), False, id="corners"),
        pytest.param(lambda x: x.ravel()[::16].tobytes(), False, id="every sixteenth element"),
        pytest.param(lambda x: x.tobytes(), True, id="all of it"),
    ],
)
def test_results_that_are_kept_are_right_only_by_all_of_the_input(key: Function, is_right: bool) -> None:
    found = refusals((64, 16), "float64", loop_of_columns, cached(key))
    assert (found == []) if is_right else len(found) > 2
    assert is_right or any("differ from those of the call before" in message for message in found)


def test_only_axes_that_are_summed_over_have_such_roundings() -> None:
    from aisp_mcp.judge.verifier.walks import summed_axes

    draw = torch.Generator().manual_seed(1)
    inputs = {name: torch.randn(8, 8, dtype=torch.float64, generator=draw) for name in "xy"}

    def axes(run: Callable[..., Any]) -> dict[str, list[int]]:
        return {name: list(found) for name, found in summed_axes(lambda given: tensors(run(**given)), inputs).items()}

    assert axes(lambda x, y: x * y) == {"x": [], "y": []}
    assert axes(lambda x, y: x.numpy() @ y.numpy()) == {"x": [1], "y": [0]}
    assert axes(lambda x, y: (x + y).sum(0)) == {"x": [0], "y": [0]}
    assert axes(lambda x, y: x.numpy().cumsum(1)) == {"x": [1], "y": []}
    assert axes(lambda x, y: float(np.vdot(x.numpy(), y.numpy()))) == {"x": [0, 1], "y": [0, 1]}


def scores(x: Any) -> Any:
    return (x - x.mean()) / x.std()


def listed_scores(x: Any) -> Any:
    numbers = x.tolist()
    mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
    return np.array([(number - mean) / deviation for number in numbers])  # raises where all are equal


def transformed(x: Any) -> Any:
    places = np.arange(len(x))
    answer = np.exp(-2j * np.pi * np.outer(places, places) / len(x)) @ x  # sines of large angles are off
    return np.stack([answer.real, answer.imag])


def quickly_transformed(x: Any) -> Any:
    answer = np.fft.fft(x)
    return np.stack([answer.real, answer.imag])


def deviations(x: Any) -> Any:
    return np.array([statistics.pstdev(column) for column in x.T.tolist()])  # exactly 0 where all are equal


def below(x: Any) -> Any:
    return np.array([1 + math.erf(8 * number) for number in x.tolist()])  # exactly 0 from -0.74 on


def exactly_below(x: Any) -> Any:
    return np.array([math.erfc(-8 * number) for number in x.tolist()])


@pytest.mark.parametrize(
    ("shape", "baseline", "candidate"),
    [
        pytest.param((500,), scores, listed_scores, id="what is divided by a deviation"),
        pytest.param((500,), listed_scores, scores, id="the same the other way round"),
        pytest.param((200, 4), deviations, lambda x: x.std(0), id="an exact zero and its rounding"),
        pytest.param((500,), below, exactly_below, id="zeros that rounding makes of small numbers"),
        pytest.param((256,), transformed, quickly_transformed, id="a table of sines that is less exact"),
    ],
)
def test_roundings_that_the_baseline_hides_accuse_nobody(
    shape: tuple[int, ...], baseline: Function, candidate: Function
) -> None:
    assert refusals(shape, "float64", baseline, candidate) == []


@pytest.mark.parametrize(("function", "is_tried"), [(scores, False), (lambda x: x - x.mean(), True), (np.var, True)])
def test_equal_numbers_are_tried_unless_rounding_alone_decides(function: Function, is_tried: bool) -> None:
    class Pair(Benchmark):
        def inputs(self, rng: Any) -> dict[str, Any]:
            return {"x": rng.randn(100, dtype="float64")}

        def run(self, **given: Any) -> Any:
            return tensors(function(given["x"].numpy()))

    assert ("constant" in Trial(Pair()).kinds) is is_tried
