"""Evaluations of a reference in other orders of operations: what they add, and what they leave as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.verifier import evaluation  # noqa: E402
from aisp_mcp.judge.verifier.checks.other_orders import OtherOrders  # noqa: E402
from aisp_mcp.judge.verifier.checks.tolerance import compare  # noqa: E402
from aisp_mcp.judge.verifier.evaluation import evaluate_in_order, evaluate_jittered  # noqa: E402
from aisp_mcp.judge.verifier.inputs.bank import InputBank  # noqa: E402
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator  # noqa: E402

pytestmark = [pytest.mark.torch]
LOST = 2.0**-25  # less than half a rounding of one in float32
EPS = 2.0**-23


def ones() -> Any:
    return torch.ones(6, dtype=torch.float64)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "batch norm": lambda x, y: functional.batch_norm(x, 0 * ones(), ones(), training=True),
    "batch norm with known statistics": lambda x, y: functional.batch_norm(x, 0 * ones(), ones()),
    "instance norm": lambda x, y: functional.instance_norm(x),
    "layer norm": lambda x, y: functional.layer_norm(x, (5, 4), x[0, 0], y[0, 0]),
    "group norm": lambda x, y: functional.group_norm(x, 3),
    "variance": lambda x, y: x.var((1, -1), keepdim=True),
    "variance of all": lambda x, y: x.var(unbiased=False),
    "variance and mean": lambda x, y: torch.cat(torch.var_mean(x, (0, 3))),
    "deviation and mean": lambda x, y: torch.cat(torch.std_mean(x, 1, keepdim=True)),
    "norm": lambda x, y: x.norm(dim=1),
    "sum of magnitudes": lambda x, y: torch.linalg.vector_norm(x, 1, dim=(1, 2)),
    "largest magnitude": lambda x, y: torch.linalg.vector_norm(x, torch.inf),
    "norm of complex numbers": lambda x, y: torch.linalg.vector_norm(torch.complex(x, y)),
    "mean": lambda x, y: x.mean((1, 3), keepdim=True),
    "sum of one number": lambda x, y: x[0, 0, 0, 0].sum(),
    "sum of nothing": lambda x, y: x[:0].sum(),
    "loss without reduction": lambda x, y: functional.huber_loss(x, y, reduction="none"),
    "loss": lambda x, y: functional.smooth_l1_loss(x, y),
    "cross entropy": lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_steps_give_what_the_operation_gives(name: str) -> None:
    draw = torch.Generator().manual_seed(3)
    x, y = (torch.randn(8, 6, 5, 4, dtype=torch.float64, generator=draw) for _ in range(2))
    before = x.clone()
    expected = OPERATIONS[name](x, y)
    ordered = evaluate_in_order(lambda: OPERATIONS[name](x, y))
    noisy = evaluate_jittered(lambda: OPERATIONS[name](x, y), EPS, 8192.0, 1)
    torch.testing.assert_close(ordered, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(noisy, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("count", "lanes"), [(1 << 10, 1), (1 << 13, 1), (1 << 14, 8), (1 << 18, 8), ((1 << 18) + 8, 9), (1 << 19, 16)]
)
def test_long_sums_lose_small_terms_behind_a_large_one(count: int, lanes: int) -> None:
    """In each lane that begins with a one, every other term is lost."""
    terms = torch.full((2, count), LOST, dtype=torch.float64)
    terms[:, :lanes] = 1.0
    for program in (lambda: terms.sum(1), lambda: terms.mT.sum(0), lambda: terms.mean(1) * count):
        lost = terms.sum(1) - evaluate_in_order(program)
        torch.testing.assert_close(lost, torch.full((2,), (count - lanes) * LOST, dtype=torch.float64))


def test_a_variance_may_be_computed_from_mean_squares() -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(64, 256, dtype=torch.float64, generator=draw)

    def moved(offset: float) -> float:
        values = x + offset
        noisy = evaluate_jittered(lambda: values.var(1), EPS, 8192.0, 1)
        return float((noisy - values.var(1)).abs().max())

    assert moved(30.0) > 100 * moved(0.0)


class Convolution(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(4, 3, 16, 16), "w": rng.randn(8, 3, 3, 3)}

    def run(self, x: Any, w: Any) -> Any:
        return functional.conv2d(x, w).relu()


class Product(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 64), "w": rng.randn(64, 64)}

    def run(self, x: Any, w: Any) -> Any:
        return x @ w


class Coherent(Benchmark):
    """Two convolutions without negative weights: errors of one sign add up."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        squeeze, expand = rng.rand(6, 3, 1, 1).abs(), rng.rand(32, 6, 3, 3).abs()
        return {"x": rng.randn(2, 3, 64, 64), "squeeze": squeeze, "expand": expand}

    def run(self, x: Any, squeeze: Any, expand: Any) -> Any:
        return functional.conv2d(functional.conv2d(x, squeeze).relu(), expand, padding=1).relu()


@pytest.mark.parametrize(
    ("narrowed", "accepted"),
    [
        (evaluation.rounded_to_tf32, True),
        (evaluation.truncated_to_tf32, True),
        (lambda x: x.bfloat16().double(), False),
    ],
    ids=["rounded to TF32", "cut to TF32", "bfloat16"],
)
def test_tensor_cores_may_ignore_the_last_bits(
    monkeypatch: pytest.MonkeyPatch, narrowed: Callable[[Any], Any], accepted: bool
) -> None:
    """A program that tunes itself may get either algorithm."""
    monkeypatch.setattr(evaluation, "allows_tf32", lambda device: True)
    spec, seed = Coherent(), 1
    bank, orders = InputBank("cpu", ReferenceEvaluator(spec, {})), OtherOrders(spec.tolerance.error_ratio)
    wide = {name: value.double() for name, value in bank.inputs(seed, "plain").items()}
    out = evaluation.evaluate_in_tf32(lambda: spec.run(**wide), narrowed)[0].float()
    base, ref = bank.both(seed, "plain", bank.inputs(seed, "plain"))
    call: Any = SimpleNamespace(bank=bank, seed=seed, mode="plain", round=SimpleNamespace(battery=True, worker_id=2))
    found = compare(out, base, ref, spec.tolerance)
    again = orders.explained(
        call, 0, base, 1.0, found, lambda error: compare(out, base, ref, spec.tolerance, allowed=error)
    )
    assert (again[1] is None) == accepted, again


@pytest.mark.parametrize(
    ("kind", "allowed", "narrowed", "accepted"),
    [
        (Convolution, True, evaluation.rounded_to_tf32, True),
        (Convolution, True, evaluation.truncated_to_tf32, True),
        (Convolution, True, lambda x: x.half().float(), True),
        (Convolution, True, lambda x: x.bfloat16().float(), False),
        (Convolution, False, evaluation.rounded_to_tf32, False),
        (Product, True, evaluation.rounded_to_tf32, False),
    ],
    ids=[
        "TF32",
        "TF32 without rounding",
        "float16 has as many bits",
        "bfloat16",
        "TF32 where it is forbidden",
        "TF32 in a product",
    ],
)
def test_a_convolution_may_use_tf32_where_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Benchmark],
    allowed: bool,
    narrowed: Callable[[Any], Any],
    accepted: bool,
) -> None:
    """On a GPU, the library decides that by the order of dimensions in memory."""
    monkeypatch.setattr(evaluation, "allows_tf32", lambda device: allowed)
    bank, orders = (
        InputBank("cpu", ReferenceEvaluator(spec := kind(), {})),
        OtherOrders(spec.tolerance.error_ratio),
    )
    out = spec.run(**{name: narrowed(value).float() for name, value in bank.inputs(7, "plain").items()})
    base, ref = bank.both(7, "plain", bank.inputs(7, "plain"))
    call: Any = SimpleNamespace(bank=bank, seed=7, mode="plain", round=SimpleNamespace(battery=True, worker_id=2))
    found = compare(out, base, ref, spec.tolerance)
    assert found[1] is not None
    again = orders.explained(
        call, 0, base, 1.0, found, lambda error: compare(out, base, ref, spec.tolerance, allowed=error)
    )
    assert (again[1] is None) == accepted, again


def test_tf32_is_for_convolutions_on_a_gpu_that_do_not_forbid_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        assert (evaluation.allows_tf32("cuda"), evaluation.allows_tf32("cpu")) == (allowed, False)


class Counted:
    """A bank whose evaluations are counted; each allows an error of `size` for every element."""

    device, reference = "cpu", SimpleNamespace(convolves=False)

    def __init__(self, size: float, elements: int) -> None:
        self.evaluations, self._errors = 0, lambda: [torch.full((elements,), size, dtype=torch.float64)]

    def sums_unseen(self, _: int) -> bool:
        return False

    def rounding(self, *_: Any) -> Iterator[list[Any]]:
        for _ in range(4):
            self.evaluations += 1
            yield self._errors()

    def in_order(self, *_: Any) -> list[Any]:
        self.evaluations += 1
        return self._errors()


def explained(orders: OtherOrders, bank: Counted, error: float, battery: bool = False) -> float:
    """The ratio of an error; without other orders, it would be the error itself."""
    filled = SimpleNamespace(battery=battery, worker_id=2)
    call: Any = SimpleNamespace(bank=bank, seed=1, mode="plain", round=filled)
    compared = lambda allowed: (error / float(1 + allowed.mean()), None)  # noqa: E731
    return orders.explained(call, 0, torch.zeros(1), 1.0, (error, None), compared)[0]


@pytest.mark.parametrize(("elements", "evaluations"), [(1 << 10, 2), (16, 5)], ids=["many", "few"])
def test_an_error_far_beyond_the_limit_costs_two_references(elements: int, evaluations: int) -> None:
    """For a few elements, a single draw may be small by chance."""
    bank = Counted(1.0, elements)
    assert explained(OtherOrders(24.0), bank, 1e4) > 24.0
    assert bank.evaluations == evaluations


def test_errors_that_were_explained_are_rarely_explained_again() -> None:
    orders, bank = OtherOrders(24.0), Counted(1.0, 1 << 10)
    for _ in range(3):
        assert explained(orders, bank, 60.0) <= 12.0
    assert bank.evaluations == 3
    for _ in range(100):
        assert explained(orders, bank, 59.0) <= 12.0
    assert 3 < bank.evaluations < 60
    before = bank.evaluations
    explained(orders, bank, 61.0)
    explained(orders, bank, 59.0, battery=True)
    assert bank.evaluations == before + 2


@pytest.mark.parametrize(
    ("own_error", "ratio", "may_explain"),
    [(1e-3, 1e3, False), (1e-3, 500.0, True), (1e-6, 1e3, True), (1e-6, 1e5, False)],
)
def test_an_output_with_narrow_operands_leaves_less_to_explain(
    own_error: float, ratio: float, may_explain: bool
) -> None:
    """All orders share the error of such operands, in TF32 for example. The limit is 24."""
    bank: Any = SimpleNamespace(reference=SimpleNamespace(convolves=False))
    ref = torch.randn(1 << 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    base = (ref * (1.0 + own_error)).float()
    orders = OtherOrders(24.0)
    orders.note_coarse([own_error])
    assert orders.may_explain(bank, 0, ratio, base, ref) == may_explain
    assert orders.may_explain(bank, 0, ratio, base[:16], ref[:16])  # so few may be close by chance


@pytest.mark.parametrize(("convolves", "allowed"), [(True, True), (True, False), (False, True)])
def test_tf32_may_explain_more_than_an_order(monkeypatch: pytest.MonkeyPatch, convolves: bool, allowed: bool) -> None:
    """Seen on an H100: a convolution in TF32 beside a baseline in float32, at 32,500 times its error."""
    monkeypatch.setattr(evaluation, "allows_tf32", lambda device: allowed)
    bank: Any = SimpleNamespace(device="cuda", reference=SimpleNamespace(convolves=convolves))
    ref = torch.randn(1 << 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    orders = OtherOrders(24.0)
    assert orders.may_explain(bank, 0, 32_500.0, ref.float(), ref) == (convolves and allowed)
    assert not orders.may_explain(bank, 0, 1e6, ref.float(), ref)
