"""Fits of exact curves, of a published table, and their errors where the law does not hold."""

from __future__ import annotations

import math

import pytest

from aisp_mcp.runs.analysis import scaling

COUNTS = (1, 2, 4, 8, 16, 32)
# R package usl, data set specsdm91 (SPEC SDM91 on a Sun), and the coefficients that its vignette prints.
SDM91 = [(1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2)]


def test_amdahl_finds_the_serial_fraction_of_an_exact_curve() -> None:
    fit = scaling.amdahl([(n, 50 * n / (1 + 0.05 * (n - 1))) for n in COUNTS])
    assert fit.parameters["serial_fraction"] == pytest.approx(0.05)
    assert fit.parameters["rate_1"] == pytest.approx(50)
    assert fit.parameters["max_speedup"] == pytest.approx(20)
    assert fit.rms_error < 1e-9
    assert fit.left_out_error is not None
    assert fit.left_out_error < 1e-9


def test_amdahl_of_linear_and_of_super_linear_scaling_has_no_serial_part() -> None:
    linear = scaling.amdahl([(n, 10.0 * n) for n in COUNTS])
    assert linear.parameters["serial_fraction"] == pytest.approx(0, abs=1e-12)
    above = scaling.amdahl([(1, 10.0), (2, 25.0), (4, 60.0)])
    assert above.parameters["serial_fraction"] == 0
    assert "max_speedup" not in above.parameters
    assert above.rms_error > 0.05


def test_usl_finds_contention_and_coherency_of_an_exact_curve() -> None:
    fit = scaling.usl([(n, 100 * n / (1 + 0.03 * (n - 1) + 2e-4 * n * (n - 1))) for n in COUNTS])
    assert fit.parameters == pytest.approx({"rate_1": 100, "contention": 0.03, "coherency": 2e-4})
    assert fit.at_best == pytest.approx(math.sqrt(0.97 / 2e-4))


def test_usl_agrees_with_the_published_fit_to_four_digits() -> None:
    fit = scaling.usl(SDM91)
    assert fit.parameters["rate_1"] == pytest.approx(89.995, rel=1e-4)
    assert fit.parameters["contention"] == pytest.approx(0.02773, rel=2e-4)
    assert fit.parameters["coherency"] == pytest.approx(1.0436e-4, rel=2e-4)
    assert fit.at_best == pytest.approx(96.52, rel=1e-4)


def test_power_law_of_sizes() -> None:
    fit = scaling.power([(n, 3e-9 * n**1.5) for n in (10, 100, 1000)])
    assert fit.parameters == pytest.approx({"coefficient": 3e-9, "exponent": 1.5})


@pytest.mark.parametrize("law", [scaling.amdahl, scaling.usl, scaling.power])
def test_too_few_points_are_refused(law: object) -> None:
    with pytest.raises(ValueError, match="different positive points"):
        law([(1, 1.0), (1, 2.0)])  # type: ignore[operator]


def test_the_law_that_predicts_unseen_points_is_the_best() -> None:
    curve = [(n, 100 * n / (1 + 0.03 * (n - 1) + 2e-3 * n * (n - 1))) for n in COUNTS]
    fit = scaling.over_workers("x", curve)
    assert fit.best == "usl"
    assert fit.sentence.startswith("usl: contention 0.03, coherency 0.002, throughput peaks at 22 workers")
    assert fit.efficiency[0] == pytest.approx(1)
    assert fit.efficiency == sorted(fit.efficiency, reverse=True)


def test_two_points_have_no_left_out_error() -> None:
    fit = scaling.over_workers("x", [(1, 10.0), (2, 15.0)])
    assert fit.best == "amdahl"
    assert fit.fits[0].left_out_error is None
    assert fit.fits[0].parameters["serial_fraction"] == pytest.approx(1 / 3)
