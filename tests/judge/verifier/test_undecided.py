"""Answers that ties or roundings among computed values decide: several are right, and a wrong one is still refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from aisp_mcp.bench import Answers, Benchmark  # noqa: E402
from aisp_mcp.errors import BenchmarkError  # noqa: E402
from aisp_mcp.judge.candidate.calling import Steps, answered, with_values  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.verifier import settling  # noqa: E402
from aisp_mcp.judge.verifier.inputs.bank import InputBank  # noqa: E402
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator  # noqa: E402

pytestmark = pytest.mark.torch
Function = Callable[..., Any]
K = 5


def nearest(train: Any, queries: Any) -> Any:
    return np.array([np.argsort(((train - row) ** 2).sum(1), kind="stable")[:K] for row in queries])


def by_products(train: Any, queries: Any) -> Any:
    far = (queries**2).sum(1)[:, None] + (train**2).sum(1) - 2 * queries @ train.T
    return np.argsort(far, 1)[:, :K]


def distances(train: Any, queries: Any) -> Any:
    return ((train[None] - queries[:, None]) ** 2).sum(2)


def looked_up(train: Any, queries: Any) -> Any:
    """The first point at each of the least distances, so of two at the same one it gives the first twice."""
    far = distances(train, queries)
    return np.stack([[np.flatnonzero(row == each)[0] for each in np.sort(row)[:K]] for row in far])


def misses_some(train: Any, queries: Any) -> Any:
    """The sixth in place of the fifth for about one query in a hundred."""
    far = distances(train, queries)
    order = np.argsort(far, 1, kind="stable")
    missed = far[:, 0] * 1e4 % 100 < 1
    order[missed, 4] = order[missed, 5]
    return order[:, :K]


def mean_of_nearest(train: Any, queries: Any) -> Any:
    return train[nearest(train, queries), 0].mean(1)


def router(train: Any, queries: Any) -> Any:
    return torch.softmax(torch.from_numpy(queries @ train.T), 1).topk(2).indices


def router_without_softmax(train: Any, queries: Any) -> Any:
    return np.argsort(-(queries @ train.T), 1)[:, :2]


def nucleus(train: Any, queries: Any) -> Any:
    """Which points have the largest weights that make up 0.9."""
    keep = np.zeros((len(queries), len(train)), dtype=bool)
    for row, weights in zip(keep, _weights(train, queries), strict=True):
        total = 0.0
        for at in sorted(range(len(weights)), key=lambda at: -weights[at]):
            row[at], total = True, total + weights[at]
            if total >= 0.9:
                break
    return keep


def quick_nucleus(train: Any, queries: Any) -> Any:
    weights = _weights(train, queries)
    order = np.argsort(-weights, 1)
    ordered = np.take_along_axis(weights, order, 1)
    keep = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(keep, order, ordered.cumsum(1) - ordered < 0.9, 1)
    return keep


def _weights(train: Any, queries: Any) -> Any:
    score = queries @ train.T
    weights = np.exp(score - score.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def near(train: Any, queries: Any) -> Any:
    """The points within a distance of the first query: as many as there are."""
    return np.flatnonzero(distances(train, queries)[0] <= 2.0)


def near_by_products(train: Any, queries: Any) -> Any:
    query = queries[0]
    return np.flatnonzero((train**2).sum(1) + query @ query - 2 * train @ query <= 2.0)


def by_score(train: Any, queries: Any) -> Any:
    scores = train @ queries[0]
    return [number for number in sorted(range(len(train)), key=lambda at: -scores[at]) if scores[number] > 0.5]


def by_score_unstable(train: Any, queries: Any) -> Any:
    scores = (train * queries[0]).sum(1)
    return [number for number in np.argsort(scores)[::-1].tolist() if scores[number] > 0.5]


def trial(baseline: Function, dtype: str = "float32", are_values: bool = False) -> Trial:
    class Pair(Benchmark):
        def inputs(self, rng: Any) -> dict[str, Any]:
            return {"train": rng.randn(200, 6, dtype=dtype), "queries": rng.randn(40, 6, dtype=dtype)}

    spec = Pair()

    def run(**given: Any) -> Any:
        return answered(run.steps, **given)  # type: ignore[attr-defined]

    run.steps = Steps(_arrays, baseline, False)  # type: ignore[attr-defined]
    spec.run = run  # type: ignore[method-assign]
    if are_values:
        spec.answers, spec.run = Answers(), with_values(run, False)  # type: ignore[misc, method-assign]
        bank = InputBank("cpu", ReferenceEvaluator(spec, {}))
        settling.settle(spec, lambda seed: bank.inputs(seed, "plain"))
    return Trial(spec)


def _arrays(train: Any, queries: Any) -> Any:
    return (train.numpy(), queries.numpy()), {}


def refusals(tried: Trial, candidate: Function, cycles: int = 2, fresh: int = 8) -> Iterator[str]:
    """Messages of a battery's calls and of fresh ones that are refused."""
    steps = tried.spec.run.steps._replace(function=candidate)  # type: ignore[attr-defined]
    modes = ["plain", *tried.kinds] * cycles + ["plain"] * fresh
    calls = [Call(300 + at, mode, battery=at < len(modes) - fresh) for at, mode in enumerate(modes)]
    found = (tried.judge(2, lambda **given: answered(steps, **given), call).failure for call in calls)
    return (message for message in found if message)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        pytest.param(nearest, by_products, id="nearest points"),
        pytest.param(mean_of_nearest, lambda *given: given[0][by_products(*given), 0].mean(1), id="their mean"),
        pytest.param(router, router_without_softmax, id="the best of scores that saturate"),
        pytest.param(nucleus, quick_nucleus, id="a mask of the largest"),
        pytest.param(
            lambda train, queries: np.argsort(-(train @ queries[0]), kind="stable"),
            lambda train, queries: np.argsort(-(train * queries[0]).sum(1)),
            id="the order of scores",
        ),
    ],
)
def test_any_of_several_right_answers_passes(baseline: Function, candidate: Function, dtype: str) -> None:
    assert [*refusals(trial(baseline, dtype), candidate)] == []


class Experts(Benchmark):
    """Two of eight experts for each row. Near 0, the softmax is the same for all, so the order of experts decides."""

    def params(self, rng: Any) -> dict[str, Any]:
        return {"router": rng.randn(16, 8), "weights": rng.randn(8, 16, 16)}

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(128, 16)}

    def run(self, x: Any, router: Any, weights: Any) -> Any:
        shares, chosen = torch.softmax(x @ router, 1).topk(2)
        return torch.einsum("tk,td,tkde->te", shares, x, weights[chosen])


def experts_of_logits(x: Any, router: Any, weights: Any) -> Any:
    shares, chosen = torch.softmax(x @ router, 1), (x @ router).topk(2).indices
    return torch.einsum("tk,td,tkde->te", shares.gather(1, chosen), x, weights[chosen])


def test_any_of_equal_experts_whose_weights_are_parameters_passes() -> None:
    tried = Trial(Experts())
    assert "tiny" in tried.kinds
    halved = lambda x, router, weights: experts_of_logits(x, router, weights) / 2  # noqa: E731
    assert not tried.judge(1, experts_of_logits, Call(3, "tiny", battery=True)).failure
    assert all(tried.judge(2, halved, Call(3, mode, battery=True)).failure for mode in ("spikes", "exact"))


@pytest.mark.parametrize(("baseline", "candidate"), [(near, near_by_products), (by_score, by_score_unstable)])
def test_so_it_does_where_the_number_of_positions_varies(baseline: Function, candidate: Function) -> None:
    assert [*refusals(trial(baseline, are_values=True), candidate)] == []
    assert any(refusals(trial(baseline, are_values=True), lambda *given: candidate(*given)[:-1]))


def test_fresh_inputs_refuse_nothing_that_the_battery_accepted() -> None:
    """150 calls with 200 neighbours each: distances as differences of larger numbers are off by many roundings."""
    assert [*refusals(trial(nearest), by_products, cycles=1, fresh=150)] == []


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        pytest.param(nearest, looked_up, id="one of two equal ones twice"),
        pytest.param(nearest, misses_some, id="one query in a hundred"),
        pytest.param(nearest, lambda train, queries: nearest(train[:-1], queries), id="the last point left out"),
        pytest.param(nearest, lambda train, queries: nearest(train[:, 1:], queries[:, 1:]), id="a coordinate less"),
        pytest.param(
            nearest,
            lambda *given: np.argsort(distances(*given).astype(np.float16), 1, kind="stable")[:, :K],
            id="distances in float16",
        ),
        pytest.param(router, lambda *given: router_without_softmax(*given)[:, ::-1].copy(), id="the best ones swapped"),
        pytest.param(
            nucleus, lambda *given: quick_nucleus(given[0] * np.float32(1.001), given[1]), id="a mask of others"
        ),
    ],
)
def test_wrong_ones_are_refused(baseline: Function, candidate: Function) -> None:
    assert any(refusals(trial(baseline), candidate))


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        pytest.param(lambda x, _: (x >= 1).sum(1), lambda x, _: (x > 1).sum(1), id="at a limit"),
        pytest.param(lambda x, _: x > 0, lambda x, _: x >= 0, id="at zero"),
        pytest.param(lambda x, _: np.floor(x).astype(int), lambda x, _: np.ceil(x).astype(int) - 1, id="at integers"),
        pytest.param(
            lambda x, bins: np.searchsorted(np.sort(bins[:, 0]), x[:, 0]),
            lambda x, bins: np.searchsorted(np.sort(bins[:, 0]), x[:, 0], side="right"),
            id="between equal numbers",
        ),
        pytest.param(
            lambda x, _: (x[:, :1] > x[:, 0]).sum(1), lambda x, _: (x[:, :1] >= x[:, 0]).sum(1) - 1, id="ranks of ties"
        ),
    ],
)
def test_what_a_program_does_with_ties_of_its_inputs_counts(baseline: Function, candidate: Function) -> None:
    assert any(refusals(trial(baseline), candidate))


def test_a_baseline_that_leaves_most_undecided_is_refused_by_that_reason() -> None:
    digits = lambda x, _: (np.exp(x[:, 0]) * 2**21).astype(int) % 2  # noqa: E731
    with pytest.raises(BenchmarkError, match=r"Rounding decides the baseline's output: \d+ % of it changes"):
        assert any(refusals(trial(digits), lambda x, _: digits(x.astype(float), _)))
