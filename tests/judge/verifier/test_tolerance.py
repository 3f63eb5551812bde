"""The oracle: what it must let pass and what it must stop, on tensors with known errors."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import pytest

from aisp_mcp.bench import Tolerance
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import MODES, CallRng
from aisp_mcp.judge.verifier.checks.contracts import WrongPositionError, values_at
from aisp_mcp.judge.verifier.checks.tolerance import ADVERSARIAL_SLACK, adversarial_slack, compare, near
from aisp_mcp.judge.verifier.evaluation import evaluate

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
K = 512
STANDARD = Tolerance()


@pytest.fixture(scope="module")
def product() -> dict[str, Any]:
    """A float32 product of zero-mean matrices, its truth, and the operands."""
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(K, K, generator=generator) for _ in range(2))
    return {"a": a, "b": b, "base": a @ b, "ref": a.double() @ b.double()}


def error_ratio(out: Any, product: dict[str, Any], tolerance: Tolerance = STANDARD, slack: float = 1.0) -> Any:
    return compare(out, product["base"], product["ref"], tolerance, slack)


def test_the_baseline_itself_has_ratio_one(product: dict[str, Any]) -> None:
    assert error_ratio(product["base"], product) == (pytest.approx(1.0), None)


def test_an_example_has_digits_that_show_the_error() -> None:
    exact = torch.tensor([1676.25], dtype=torch.float64)
    assert str(compare(exact * (1 + 1e-9), exact, exact, STANDARD)[1]).endswith("1676.250002, truth 1676.25")


@pytest.mark.parametrize("parts", [2, 8, K])
def test_other_orders_of_summation_pass(product: dict[str, Any], parts: int) -> None:
    """K parts is the sequential sum, the worst honest order."""
    a, b = product["a"], product["b"]
    out = torch.zeros(K, K)
    for left, right in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True):
        out += left @ right
    ratio, failure = error_ratio(out, product)
    assert failure is None, ratio


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrower_inputs_are_stopped(product: dict[str, Any], dtype: Any) -> None:
    out = product["a"].to(dtype).float() @ product["b"].to(dtype).float()
    ratio, failure = error_ratio(out, product)
    assert failure is not None
    assert ratio > 2 * Tolerance().error_ratio


def test_truncated_mantissas_as_in_tf32_are_stopped(product: dict[str, Any]) -> None:
    def tf32(x: Any) -> Any:
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

    assert error_ratio(tf32(product["a"]) @ tf32(product["b"]), product)[1] is not None


def test_three_tf32_products_are_honest(product: dict[str, Any]) -> None:
    def split(x: Any) -> tuple[Any, Any]:
        high = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
        return high, x - high

    (a_high, a_low), (b_high, b_low) = split(product["a"]), split(product["b"])
    assert error_ratio(a_high @ b_high + (a_high @ b_low + a_low @ b_high), product)[1] is None


@pytest.mark.parametrize("place", [0, K * K // 2, K * K - 1])
def test_one_wrong_element_is_found(product: dict[str, Any], place: int) -> None:
    out = product["base"].clone()
    out.view(-1)[place] += 0.01
    ratio, failure = error_ratio(out, product)
    assert failure is not None
    assert f"worst element {place} of" in failure
    assert ratio > 16


def test_a_small_row_does_not_hide_behind_a_large_one() -> None:
    """The error unit of the whole tensor is that of the large row, ten thousand times the small one's values."""
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(8, 64, generator=generator)
    a[0] *= 1e9
    base, ref = a * 1.1, a.double() * 1.1
    out = base.clone()
    out[5] = 0
    assert compare(base, base, ref, STANDARD)[1] is None
    assert compare(out, base, ref, STANDARD)[1] is not None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_element_is_found(product: dict[str, Any], value: float) -> None:
    out = product["base"].clone()
    out[3, 4] = value
    assert "NaN or infinite" in error_ratio(out, product)[1]


def test_non_finite_values_by_contract_must_stand_in_the_same_places() -> None:
    base = torch.tensor([1.0, -math.inf, math.nan, 2.0])
    assert compare(base.clone(), base, base.double(), Tolerance(nan=True)) == (0.0, None)
    for wrong in ([1.0, math.inf, math.nan, 2.0], [1.0, -math.inf, 0.0, 2.0], [math.nan, -math.inf, math.nan, 2.0]):
        assert compare(torch.tensor(wrong), base, base.double(), Tolerance(nan=True))[1] is not None


def test_integers_are_compared_exactly() -> None:
    base = torch.arange(10)
    assert compare(base.clone(), base, base, Tolerance()) == (0.0, None)
    assert "1 of 10" in str(compare(base.clone().index_fill(0, torch.tensor([4]), 0), base, base, Tolerance())[1])


def test_an_allowed_approximation_has_its_own_measure(product: dict[str, Any]) -> None:
    out = product["base"] * 1.001
    assert error_ratio(out, product, Tolerance(approximate=2e-3))[1] is None
    assert error_ratio(out, product, Tolerance(approximate=5e-4))[1] is not None


def test_adversarial_slack_still_stops_a_skipped_step(product: dict[str, Any]) -> None:
    a, b = product["a"], product["b"]
    assert error_ratio(a[:, :-1] @ b[:-1], product, slack=ADVERSARIAL_SLACK)[1] is not None


def damaged(base: Any, kind: str, size: float, generator: Any) -> Any:
    """A copy with errors of `size` half-eps: everywhere, in one element, or in one row."""
    noise = torch.randn(base.shape, generator=generator, dtype=torch.float64) * size * torch.finfo(base.dtype).eps / 2
    where = torch.zeros(base.shape, dtype=torch.float64)
    where[{"everywhere": ..., "one element": (3, 5), "one row": 7}[kind]] = 1.0
    return (base.double() * (1 + noise * where)).to(base.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["everywhere", "one element", "one row"])
def test_what_is_near_the_baseline_is_right_whatever_the_truth(dtype: Any, kind: str) -> None:
    """Sizes of errors around the limit, and truths near the baseline and far from it: never a wrong acceptance."""
    generator = torch.Generator().manual_seed(11)
    base = (torch.randn(32, 64, generator=generator) * torch.logspace(-6, 0, 32)[:, None]).to(dtype)
    accepted = 0
    for size in (0.0, 0.5, 3.0, 8.0, 20.0, 30.0, 100.0, 3000.0, 1e5):
        out = damaged(base, kind, size, generator)
        if not near(out, base, STANDARD):
            continue
        accepted += 1
        for off in (0.0, 0.3, 1.0, 10.0, 1e4):
            ref = base.double() + (damaged(base, "everywhere", off, generator).double() - base.double())
            assert compare(out, base, ref, STANDARD)[1] is None, (size, off)
    assert 2 <= accepted < 9


@pytest.mark.parametrize("mode", MODES[1:])
def test_what_is_near_the_baseline_is_right_on_adversarial_inputs(mode: str) -> None:
    accepted = 0
    for seed, dtype in itertools.product(range(8), (torch.float32, torch.bfloat16, torch.float16)):
        rng, generator = CallRng("cpu", seed, mode), torch.Generator().manual_seed(seed)
        a, b = rng.randn(16, 96), rng.randn(96, 64)
        for program in (torch.matmul, lambda a, b: torch.softmax(a @ b, -1), lambda a, b: (a @ b).cumsum(0)):
            ref, base = program(a.double(), b.double()), program(a, b).to(dtype)
            for size in (0.5, 3.0, 8.0, 20.0, 30.0):
                out = damaged(base, "everywhere", size, generator)
                if near(out, base, STANDARD):
                    accepted += 1
                    assert compare(out, base, ref, STANDARD, adversarial_slack(dtype))[1] is None
    assert accepted


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 7.0])
def test_what_is_not_near_is_left_to_the_truth(product: dict[str, Any], value: float) -> None:
    base = product["base"]
    out = base.clone()
    out[5, 6] = value
    assert near(base, base, STANDARD)
    assert not near(out, base, STANDARD)
    assert not near(out, out, STANDARD) or math.isfinite(value)
    assert not near(base, base, Tolerance(approximate=0.1))


def test_integers_are_near_only_when_equal() -> None:
    whole = torch.arange(12)
    assert near(whole, whole.clone(), STANDARD)
    assert not near(whole, whole + (whole == 3), STANDARD)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_elements_may_not_all_be_missing(dtype: Any) -> None:
    """A vector is one row, in units of whose largest element all the others are nothing."""
    x = torch.linspace(-20, 20, 4096, dtype=torch.float64)
    ref = torch.exp(x)
    base = ref.to(dtype)
    out = base.where(ref > 4 * torch.finfo(dtype).eps * ref.max(), 0.0)
    assert "all of them small" in str(compare(out, base, ref, STANDARD)[1])
    assert not near(out, base, STANDARD)
    assert compare(base * (1 + torch.finfo(dtype).eps), base, ref, STANDARD)[1] is None


def test_sums_that_cancel_are_not_taken_for_missing_elements() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(4096, 512, generator=generator)
    halves = x[:, :256].sum(1) + x[:, 256:].sum(1)
    assert compare(halves, x.sum(1), x.double().sum(1), STANDARD)[1] is None


def test_complex_outputs_are_compared_by_their_components() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(16, 512, generator=generator)
    base, ref = torch.fft.rfft(x), torch.fft.rfft(x.double())
    out = torch.fft.fft(x)[:, :257]
    assert compare(out, base, ref, STANDARD)[1] is None
    assert near(out, base, STANDARD)
    wrong = out.clone()
    wrong[3, 5] += 1e-2j
    assert compare(wrong, base, ref, STANDARD)[1] is not None


def test_positions_are_right_by_what_they_point_to() -> None:
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, 5.0, 5.0]])
    assert torch.equal(values_at(torch.tensor([[2, 0], [3, 1]]), x, 1), torch.tensor([[3.0, 3.0], [5.0, 5.0]]))
    assert torch.equal(values_at(x.argmax(1), x, 1), torch.tensor([[3.0], [5.0]]))
    assert float(values_at(torch.tensor(1), x, None)) == 1.0
    for wrong in ([[0, 0], [1, 2]], [[0, 4], [1, 2]], [[0, -1], [1, 2]]):
        with pytest.raises(WrongPositionError):
            values_at(torch.tensor(wrong), x, 1)


@pytest.mark.parametrize("kind", ["casts", "autocast", "buffer", "default"])
def test_the_reference_of_a_mixed_baseline_is_not_rounded_on_its_way(kind: str) -> None:
    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randn(32, 32, generator=generator, dtype=torch.float64) for _ in range(2))

    def mixed() -> Any:
        if kind == "casts":
            return (x.bfloat16() @ w.to(torch.float16).bfloat16()).float()
        if kind == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ w
        if kind == "buffer":
            return torch.zeros(32, 32, dtype=torch.float32).index_add_(0, torch.arange(32), x @ w)
        return x @ w + torch.zeros(32) + torch.tensor(0.0)

    outcome = evaluate(mixed)
    assert outcome.dtype == torch.float64
    assert torch.equal(outcome, x @ w)
    assert torch.get_default_dtype() == torch.float32


def test_a_reference_that_takes_no_float64_is_named() -> None:
    x = torch.randn(4, 4, dtype=torch.float64)
    with pytest.raises(BenchmarkError, match="cannot be computed in float64") as result:
        evaluate(lambda: x.view(torch.int32) + torch.zeros(4, 4, dtype=torch.int32))
    assert result.value.hint.startswith("Define reference()")


def test_widening_does_not_import_the_compiler() -> None:
    """Its import takes seconds, and each comparison would pay for it."""
    program = (
        "import sys, torch\n"
        "from aisp_mcp.judge.verifier.evaluation import evaluate\n"
        "found = evaluate(lambda: torch.ones(3).bfloat16() / 3)\n"
        "print(found.dtype, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.float64", "False"]


def test_rounding_of_numbers_that_cancel_is_forgiven_and_nothing_more() -> None:
    """Equal numbers less their mean are zero, or one rounding away: which one depends on the order of the sum."""
    zero, rounding = torch.zeros(8, 64), torch.full((8, 64), -1.5e-7)
    assert compare(rounding, zero, zero.double(), STANDARD)[1] is not None
    assert compare(rounding, zero, zero.double(), STANDARD, ADVERSARIAL_SLACK, usual=4.0) == (0.0, None)
    assert compare(rounding * 100, zero, zero.double(), STANDARD, ADVERSARIAL_SLACK, usual=4.0)[1] is not None


def test_what_is_forgiven_is_rounding_of_sums_and_not_of_narrow_results() -> None:
    """Softmax of 1024 equal numbers, over 64 of them: each result is small compared with those of plain inputs."""
    truth = torch.full((8, 1024), 1 / 1024, dtype=torch.float64)
    part = torch.zeros(8, 1024, dtype=torch.bfloat16)
    part[:, :64] = 1 / 64
    assert compare(part, truth.bfloat16(), truth, STANDARD, ADVERSARIAL_SLACK, usual=0.9)[1] is not None


def test_errors_that_other_orders_of_operations_may_have_are_allowed() -> None:
    zero, allowed = torch.zeros(8, 64, dtype=torch.float64), torch.full((8, 64), 5e-5, dtype=torch.float64)
    for error, accepted in ((4e-5, True), (0.1, False)):
        out = torch.full((8, 64), error)
        assert (compare(out, zero.float(), zero, STANDARD, ADVERSARIAL_SLACK, allowed=allowed)[1] is None) == accepted
    assert compare(torch.full((8, 64), 4e-5), zero.float(), zero, STANDARD, ADVERSARIAL_SLACK)[1] is not None
