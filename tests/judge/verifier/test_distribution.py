"""Contracts whose output is random: an honest draw passes, and each way of not drawing is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness_support import judge

from aisp_mcp.errors import BenchmarkError

pytestmark = [pytest.mark.torch]

DROPOUT = '''
    """Dropout of a quarter."""
    import torch
    from aisp_mcp.bench import Benchmark, Tolerance
    class Dropout(Benchmark):
        tolerance = Tolerance(stochastic=True)
        def inputs(self, rng):
            return {"x": rng.randn(64, 128)}
        def run(self, x):
            return torch.nn.functional.dropout(x, 0.25)
        def reference(self, x):
            return x
'''
MASK = "def run(x):\n    return x * (torch.rand_like(x) < {keep}) * {scale}\n"


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (MASK.format(keep=0.75, scale="(1 / 0.75)"), None),
        ("def run(x):\n    return x.clone()\n", "not distributed"),
        (MASK.format(keep=0.70, scale="(1 / 0.70)"), "not distributed"),
        (MASK.format(keep=0.75, scale="1.0"), "not distributed"),
        (
            "MASK = (torch.rand(64, 128) < 0.75) / 0.75\ndef run(x):\n    return x * MASK\n",
            "repeats that of an earlier call",
        ),
    ],
    ids=["a mask of its own", "no dropout", "another share", "not scaled", "one mask for all calls"],
)
def test_a_draw_is_judged_by_its_distribution(tmp_path: Path, candidate: str, words: str | None) -> None:
    comparison = judge(tmp_path, f"import torch\n{candidate}", DROPOUT)
    assert comparison.verification is not None
    assert comparison.verification.oracle == "distribution"
    if words is None:
        assert comparison.verdict not in ("incorrect", "invalid"), comparison.sentence
    else:
        assert [flag.code for flag in comparison.flags] == ["incorrect_distribution"]
        assert words in comparison.sentence


def test_a_random_output_needs_an_expectation(tmp_path: Path) -> None:
    lacking = DROPOUT[: DROPOUT.index("        def reference")]
    with pytest.raises(BenchmarkError, match="there is no reference"):
        judge(tmp_path, MASK, lacking)


@pytest.mark.parametrize("spikes", [0, 1, 5, 50])
def test_few_large_elements_do_not_make_honest_draws_look_alike(spikes: int) -> None:
    """Independent draws correlate by chance where few elements carry the energy; a mask used again still shows."""
    import torch

    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    torch.manual_seed(0)
    torch.set_num_threads(1)
    mask = (torch.rand(8192) < 0.75) / 0.75
    for again in (False, True):
        results = set()
        for _ in range(10):
            draws = DrawTests()
            for _call in range(2):
                x = torch.randn(8192)
                if spikes:
                    x[[0, 8191, *torch.randint(8192, (spikes,)).tolist()]] = 100.0
                own, usual = (((torch.rand(8192) < 0.75) / 0.75) for _side in range(2))
                failure = draws.failure(0, x * (mask if again else own), x * usual, x)
            results.add(failure and failure.partition(":")[0])
        assert results == ({"its noise repeats that of an earlier call"} if again else {None})


def test_masks_of_inputs_that_are_mostly_zeros_are_not_called_dependent() -> None:
    """22 of 300 honest masks were: where no bit of a block is set, it is the sum of none."""
    import torch

    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    torch.manual_seed(0)
    torch.set_num_threads(1)
    for _ in range(30):
        draws = DrawTests()
        for _call in range(2):
            x = torch.randn(64, 128)
            x = x.where(x.abs() > 2.0, x.new_zeros(()))
            assert draws.failure(0, x * (torch.rand_like(x) < 0.75) / 0.75, torch.dropout(x, 0.25, True), x) is None


def drawn(kind: str, shape: tuple[int, int], x: Any, pool: list[Any]) -> Any:
    """Dropout of a quarter of x, honest or with recycled masks."""
    import torch

    if kind == "rolled":
        mask = pool[int(torch.randint(len(pool), ()))]
        return x * mask.flatten().roll(int(torch.randint(mask.numel(), ()))).view(shape)
    if kind == "repeated":
        return x * (torch.rand(shape[0] // 4, shape[1]) < 0.75).div(0.75).repeat(4, 1)
    if kind == "structured":  # half of the elements always stay: the baseline's do, too
        return torch.where(torch.arange(x.numel()).view(shape) % 2 == 0, x, torch.nn.functional.dropout(x, 0.25))
    return torch.nn.functional.dropout(x, 0.25)


@pytest.mark.parametrize(
    ("kind", "words"), [("honest", None), ("structured", None), ("rolled", "resembles"), ("repeated", "itself at lag")]
)
def test_draws_are_independent_within_and_between_calls(kind: str, words: str | None) -> None:
    import torch

    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    torch.manual_seed(1)
    torch.set_num_threads(1)
    shape, draws, result = (64, 256), DrawTests(), None
    pool = [(torch.rand(shape) < 0.75).div(0.75) for _ in range(4)]
    for _ in range(12):
        x = torch.randn(shape)
        usual = drawn("structured" if kind == "structured" else "honest", shape, x, pool)
        result = result or draws.failure(0, drawn(kind, shape, x, pool), usual, x)
    assert (result is None) if words is None else (words in str(result)), result


def forged(kind: str, x: Any, pools: Any) -> Any:
    """Dropout of a half, or normal noise, from fewer random numbers than elements."""
    import torch

    count, half = x.numel(), x.numel() // 2
    first, second = torch.randint(count, (2,)).tolist()
    if kind == "complemented and reversed":
        quarter = torch.rand(count // 4) < 0.5
        return x * torch.cat([quarter, ~quarter, quarter.flip(0), ~quarter.flip(0)]).view(x.shape).float() * 2
    if kind == "rows of a pool":
        rows = pools[0].view(-1, x.shape[1])[:96] > 0
        return x * (rows[torch.randint(96, (len(x),))] ^ rows[torch.randint(96, (len(x),))]).float() * 2
    if kind == "old signs":
        windows = pools[0][first : first + count], pools[1][second : second + count].sign()
        return x + (windows[0] * windows[1]).view(x.shape)
    if kind == "other sign":
        noise = torch.randn(half)
        return x + torch.cat([noise, noise.flip(0).neg()]).view(x.shape)
    return x + torch.randn_like(x) if kind == "noise" else torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("complemented and reversed", "resembles itself"),
        ("rows of a pool", "exclusive-ors"),
        ("old signs", "earlier calls"),
        ("other sign", "resembles itself"),
        ("noise", None),
        ("dropout", None),
    ],
)
def test_few_random_numbers_in_other_guises_are_found(kind: str, words: str | None) -> None:
    import torch

    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    torch.manual_seed(3)
    torch.set_num_threads(1)
    draws, failure = DrawTests(), None
    shape = (256, 512)
    pools = torch.randn(2, 2 * shape[0] * shape[1])
    adds = kind in ("old signs", "other sign", "noise")
    for _ in range(8):
        x = torch.randn(shape)
        usual = forged("noise" if adds else "dropout", x, pools)
        failure = failure or draws.failure(0, forged(kind, x, pools), usual, x)
    assert (failure is None) if words is None else (words in str(failure)), failure


def test_another_order_of_rounding_does_not_change_a_distribution() -> None:
    """Equal inputs give noise of few values, which a rounding moves all at once."""
    import torch

    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    torch.manual_seed(4)
    x = torch.randint(-8, 9, (128, 512)).float()
    for keep in (0.75, 0.9):
        masks = [(torch.rand(x.shape) < keep).float() for _ in range(2)]
        assert DrawTests().failure(0, x * masks[0] / keep, x * (masks[1] / keep), x) is None


@pytest.mark.parametrize(
    ("kind", "words"), [("another generator", None), ("a table of 256", "other values"), ("of 65536", "other values")]
)
def test_numbers_from_a_table_are_found_by_their_values(kind: str, words: str | None) -> None:
    torch = pytest.importorskip("torch")
    from aisp_mcp.judge.verifier.checks.distribution import DrawTests

    draw = torch.Generator().manual_seed(5)
    entries = {"a table of 256": 256, "of 65536": 65536}.get(kind, 0)
    table = torch.special.ndtri((torch.arange(entries, dtype=torch.float64) + 0.5) / max(entries, 1)).float()
    tests, messages = DrawTests(), list[str]()
    for _ in range(5):
        x = torch.randn(256, 512, generator=draw)
        own = x + 0.1 * torch.randn(x.shape, generator=draw)
        if entries:
            noise = table[torch.randint(0, entries, x.shape, generator=draw)]
        else:
            uniform = torch.rand(2, *x.shape, generator=draw, dtype=torch.float64).clamp_min(1e-12)
            noise = ((-2 * uniform[0].log()).sqrt() * torch.cos(2 * torch.pi * uniform[1])).float()
        messages += filter(None, [tests.failure(0, x + 0.1 * noise, own, x)])
    assert [words] * bool(words) == [word for word in ["other values"] if any(word in message for message in messages)]
    assert bool(messages) is bool(words)
