"""Samples instead of sums: found in 16-bit outputs and by textured inputs, and no honest order of summation accused."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import honest_alternatives  # noqa: E402

from aisp_mcp.bench import Benchmark, Tolerance  # noqa: E402
from aisp_mcp.judge.mutants.trial import Trial, calls  # noqa: E402
from aisp_mcp.judge.protocol.draws import textures  # noqa: E402
from aisp_mcp.judge.protocol.draws.rng import CallRng  # noqa: E402
from aisp_mcp.judge.verifier.checks.tolerance import compare, exceeds_average, near  # noqa: E402
from aisp_mcp.validity import issues  # noqa: E402

pytestmark = [pytest.mark.torch]
NARROW = [torch.bfloat16, torch.float16]
PLAIN = textures.Statistics(1.0, 0.0)


def rows(generator: Any) -> Any:
    return torch.randn(64, 256, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("dim", [0, 1])
def test_a_factor_of_each_row_or_column_is_found_below_the_tolerance_of_an_element(dtype: Any, dim: int) -> None:
    generator = torch.Generator().manual_seed(1)
    ref = rows(generator)
    share = 8 * torch.finfo(dtype).eps / 2
    factor = 1 + share * torch.randn(ref.shape[0] if dim else 1, 1 if dim else ref.shape[1], generator=generator)
    base, out = ref.to(dtype), (ref * factor).to(dtype)
    assert "off as a whole" in str(compare(out, base, ref, Tolerance())[1])
    assert not near(out, base, Tolerance())


@pytest.mark.parametrize("dtype", NARROW)
def test_independent_errors_of_the_same_size_are_rounding(dtype: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    ref = rows(generator)
    noise = 1 + 8 * torch.finfo(dtype).eps / 2 * torch.randn(ref.shape, generator=generator)
    assert compare((ref * noise).to(dtype), ref.to(dtype), ref, Tolerance())[1] is None


@pytest.mark.parametrize("format", ["float8_e4m3fn", "float8_e5m2"])
def test_bfloat16_rounded_to_eight_bits_is_not(format: str) -> None:
    """No element is off by as much as its tolerance, and the errors are independent."""
    ref = rows(torch.Generator().manual_seed(4))
    base = ref.bfloat16()
    out = (base * 8).to(getattr(torch, format)).bfloat16() / 8
    assert exceeds_average(False, out, base, ref)
    assert not exceeds_average(False, (ref * (1 + torch.finfo(base.dtype).eps)).bfloat16(), base, ref)
    assert not near(out, base, Tolerance())


@pytest.mark.parametrize("dtype", NARROW)
def test_a_statistic_rounded_to_the_type_is_honest(dtype: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    ref = rows(generator)
    factor = torch.rsqrt(ref.square().mean(1, keepdim=True))
    out = (ref.to(dtype) * factor.to(dtype)).to(dtype)
    truth = ref.to(dtype).double() * factor
    assert compare(out, truth.to(dtype), truth, Tolerance())[1] is None


def trial(name: str) -> tuple[Trial, Any]:
    """A case of the corpus: its baseline, and its candidate's run."""
    case = {case.name: case for _, case in issues.cases()}[name]
    spaces: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for text, space in zip((case.baseline, case.candidate), spaces, strict=True):
        exec(compile_text(text), space)
    (spec,) = (
        space
        for space in spaces[0].values()
        if isinstance(space, type) and issubclass(space, Benchmark) and space is not Benchmark
    )
    return Trial(spec()), spaces[1]["run"]


def compile_text(text: str) -> Any:
    return compile(text, "case", "exec")


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("log_sum_exp_of_a_sixteenth", False),
        ("log_sum_exp_of_blocks", False),
        ("cross_entropy_of_a_sixteenth", False),
        ("gates_from_a_sixteenth_of_each_row", False),
        ("small_elements_guessed", False),
        ("mean_square_of_a_quarter_of_the_batch", False),
        ("ranks_of_pages_after_twelve_multiplications", False),
        ("linear_branch_left_out", False),
        ("cross_entropy_online", True),
        ("mean_square_in_two_parts", True),
        ("huber_loss_by_the_library", True),
        ("gates_by_a_product", True),
    ],
)
def test_cases_of_the_corpus_are_judged_by_their_values(name: str, accepted: bool) -> None:
    judging, run = trial(name)
    plain = 8 if accepted else 24
    assert any(judging.judge(1, run, call).failure for call in calls(3, judging.kinds, plain)) != accepted


@pytest.mark.parametrize("name", honest_alternatives.OPERATIONS)
@pytest.mark.parametrize("dtype", honest_alternatives.DTYPES)
def test_honest_alternatives_are_not_accused(name: str, dtype: str) -> None:
    result = honest_alternatives.accusations(name, dtype, 4)
    assert {words: row for words, row in result.items() if row[0]} == {}


@pytest.mark.parametrize("texture", textures.TEXTURES, ids=lambda value: value.__name__)
def test_textures_stay_within_the_range_of_plain_values(texture: Any) -> None:
    for seed in range(20):
        values = torch.randn(32, 1024, generator=torch.Generator().manual_seed(seed))
        texture(values, PLAIN, random.Random(seed), partial(torch.Generator().manual_seed, seed), 5.75)
        assert float(values.abs().max()) <= 6.0
        bounded = torch.rand(32, 1024, generator=torch.Generator().manual_seed(seed)).mul_(2).sub_(1)
        texture(bounded, PLAIN, random.Random(seed), partial(torch.Generator().manual_seed, seed), 1.0)
        assert float(bounded.abs().max()) <= 1.0


@pytest.mark.parametrize("texture", textures.TEXTURES, ids=lambda value: value.__name__)
def test_a_texture_applies_the_statistics_of_each_row(texture: Any) -> None:
    for seed in range(20):
        values, factor, mean = (
            torch.randn(shape, generator=torch.Generator().manual_seed(seed + 100 * number))
            for number, shape in enumerate(((32, 256), (32, 1), (32, 1)))
        )
        apart, together = values + mean, values.clone()
        texture(apart, PLAIN, random.Random(seed), partial(torch.Generator().manual_seed, seed), 5.0)
        statistics = textures.Statistics(factor, mean * factor)
        texture(together, statistics, random.Random(seed), partial(torch.Generator().manual_seed, seed), 5.0)
        assert torch.allclose(together, apart * factor, rtol=1e-5, atol=1e-5)


def test_no_sample_predicts_the_squares_of_rows_in_most_calls() -> None:
    """Neither a stride nor a stretch: in most calls a third of the rows are off by a tenth or more."""
    wrong = {"stride": 0, "stretch": 0}
    for seed in range(60):
        squares = CallRng("cpu", seed).randn(32, 4096).square()
        for name, part in (("stride", squares[:, ::16]), ("stretch", squares[:, :1024])):
            off = (part.mean(1) / squares.mean(1) - 1).abs() > 0.1
            wrong[name] += bool(off.float().mean() > 1 / 3)
    assert min(wrong.values()) >= 36, wrong


def test_a_narrow_range_keeps_rows_even() -> None:
    for seed in range(20):
        squares = CallRng("cpu", seed).randn(32, 4096, scale=(0.75, 1.4), shift=0.0).square()
        assert float((squares[:, ::16].mean(1) / squares.mean(1)).log().abs().max()) < 0.5
