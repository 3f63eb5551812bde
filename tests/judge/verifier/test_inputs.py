"""Inputs of timed calls: new values, and secret statistics within the declared ranges."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from aisp_mcp.judge.protocol.draws import (  # noqa: E402
    drawing,
    textures,
)
from aisp_mcp.judge.protocol.draws.rng import MODES, CallRng  # noqa: E402

pytestmark = [pytest.mark.torch]
SEEDS = range(20)


def rows(seed: int, **ranges: Any) -> Any:
    return CallRng("cpu", seed).randn(64, 4096, **ranges)


def test_the_same_seed_gives_the_same_values_and_another_one_others() -> None:
    for mode in MODES:
        one, again, other = (CallRng("cpu", seed, mode).randn(8, 64) for seed in (1, 1, 2))
        assert torch.equal(one, again), mode
        assert not torch.equal(one, other), mode


@pytest.mark.parametrize(
    ("draw", "is_permuted"),
    [
        (lambda rng: rng.randn(20, 50, dtype="float64"), False),
        (lambda rng: rng.rand(1000), False),
        (lambda rng: rng.randint(5, 8, 1000, dtype="uint8"), False),
        (lambda rng: rng.bernoulli(0.5, 1000), False),
        (lambda rng: rng.permutation(1000), True),
    ],
)
def test_nearly_the_same_inputs_differ_inside_one_of_them(draw: Callable[[Any], Any], is_permuted: bool) -> None:
    for way, least, most in ((0, 1, 1), (1, 0, 2), (2, 100, 125)):
        one, other = (CallRng("cpu", 3, changed=changed) for changed in (None, (1, way)))
        same, kept, before, after = draw(one), draw(other), draw(one), draw(other)
        changed = (before != after).flatten().nonzero().flatten()
        assert torch.equal(same, kept)
        assert (least <= len(changed) <= most) or is_permuted
        assert len(changed) == 0 or 100 <= int(changed.min()) <= int(changed.max()) < 900
        assert after.double().abs().max() <= before.double().abs().max()
        assert torch.equal(before.flatten().sort().values, after.flatten().sort().values) or not is_permuted


def test_integers_of_both_signs_are_also_drawn_around_0() -> None:
    signed = [CallRng("cpu", seed, "tiny").randint(-9999, 9999, 500, any_values=True) for seed in range(16)]
    other = [CallRng("cpu", seed, "tiny").randint(5, 9999, 500, any_values=True) for seed in range(16)]
    assert {tuple(values.unique().tolist()) for values in signed} > {(-1, 0, 1)}
    assert all(len(values.unique()) <= 2 for values in other)


def test_large_inputs_do_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_threads", [])
    alone = CallRng("cpu", 1).randn(3, drawing.PIECE)
    drawing.use_cores(os.sched_getaffinity(0))
    assert torch.equal(alone, CallRng("cpu", 1).randn(3, drawing.PIECE))
    pieces = CallRng("cpu", 1, secret_statistics=False).randn(3, drawing.PIECE)
    assert pieces.corrcoef().fill_diagonal_(0).abs().max() < 0.02


def test_calls_have_other_scales_and_so_have_rows_and_parts_of_rows() -> None:
    drawn = [rows(seed) for seed in SEEDS]
    by_call = torch.stack([sample.std(1).log().mean() for sample in drawn])
    by_row = torch.stack([sample[:, :8].std() / sample.std(1).mean() for sample in drawn])
    spread = torch.stack([sample.std(1).log().std() for sample in drawn])
    parts = torch.stack([(sample[:, :400].std() / sample[:, -400:].std()).log().abs() for sample in drawn])
    assert by_call.std() > 0.1
    assert spread.median() > 0.05
    assert (parts > 0.1).float().mean() > 0.25  # the others have a texture instead
    assert torch.isfinite(by_row).all()


def test_the_mean_of_rows_is_not_known() -> None:
    means = torch.stack([rows(seed).mean(1) for seed in SEEDS])
    assert means.abs().mean() > 0.02
    assert means.std(1).median() > 0.005


def test_declared_ranges_hold_for_every_row_and_fixed_ones_give_the_plain_distribution() -> None:
    for seed in SEEDS:
        deviations = rows(seed, scale=(0.9, 1.1), shift=0.0).std(1)
        assert float(deviations.min()) > 0.85
        assert float(deviations.max()) < 1.15
        plain = rows(seed, scale=1.0, shift=0.0)
        assert float(plain.std()) == pytest.approx(1.0, abs=0.01)
        assert float(plain.mean()) == pytest.approx(0.0, abs=0.01)
        assert float(CallRng("cpu", seed).rand(64, 512).abs().max()) <= 1.0


def test_static_tensors_and_adversarial_ones_keep_their_distribution() -> None:
    static = CallRng("cpu", 3, secret_statistics=False).randn(512, 512)
    assert float(static.std()) == pytest.approx(1.0, abs=0.01)
    exact = [16 * CallRng("cpu", seed, "exact").randn(64, 64) for seed in range(16)]
    assert all(torch.equal(values, values.round()) for values in exact)
    assert {bool((values % 16).any()) for values in exact} == {True, False}


def test_no_stretch_of_one_call_resembles_one_of_another_at_any_lag() -> None:
    """Windows of two pools do: the logarithms of their magnitudes correlate by 0.7 where they overlap."""
    one, other = (rows(seed).flatten().abs().clamp_min(1e-9).log().double() for seed in (1, 2))
    one, other = one - one.mean(), other - other.mean()
    size = 2 * len(one)
    likeness = torch.fft.irfft(torch.fft.rfft(one, size) * torch.fft.rfft(other, size).conj(), size)
    limit = 8 / math.sqrt(len(one)) + 0.05  # rows and their parts have scales of their own
    assert float(likeness.abs().max()) / float(one.norm() * other.norm()) < limit


def test_complex_values_have_independent_components() -> None:
    drawn = CallRng("cpu", 5).randn(32, 128, dtype="complex64", scale=1.0, shift=0.0)
    assert drawn.dtype == torch.complex64
    assert float((drawn.real * drawn.imag).mean().abs()) < 0.1
    assert drawn.shape == (32, 128)


@pytest.mark.parametrize("texture", sorted(set(textures.TEXTURES), key=lambda value: value.__name__))
def test_a_texture_never_writes_one_element_twice_at_once(texture: textures.Texture) -> None:
    """On a GPU either value would stay, and inputs drawn again for a check would differ from those given out."""

    class Scatters(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "scatter" in str(func) or "index_put" in str(func):
                index = args[2].sort(1).values
                assert (index.diff(dim=1) != 0).all(), func
            return func(*args, **(kwargs or {}))

    generator = torch.Generator().manual_seed(7)
    with Scatters():
        for seed in range(20):
            statistics = textures.Statistics(torch.ones(64, 1), torch.ones(64, 1))
            texture(torch.randn(64, 32, generator=generator), statistics, random.Random(seed), lambda: generator, 5.0)
