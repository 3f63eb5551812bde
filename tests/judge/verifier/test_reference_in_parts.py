"""References whose float64 copies do not fit into memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.candidate import calling  # noqa: E402
from aisp_mcp.judge.protocol.draws.rng import CallRng  # noqa: E402
from aisp_mcp.judge.verifier.inputs.bank import InputBank  # noqa: E402
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator  # noqa: E402

EXPERTS, WIDTH = 64, 512  # 32 MiB of weights in bfloat16, 128 in float64


class Experts(Benchmark):
    """A mixture of experts. is_static: its weights are no input of a call."""

    is_static = False

    def _weights(self, rng: Any) -> dict[str, Any]:
        return {"w": rng.randn(EXPERTS, WIDTH, WIDTH, dtype="bfloat16")}

    def params(self, rng: Any) -> dict[str, Any]:
        return self._weights(rng) if self.is_static else {}

    def inputs(self, rng: Any) -> dict[str, Any]:
        given = {} if self.is_static else self._weights(rng)
        return given | {"x": rng.randn(8, WIDTH, dtype="bfloat16"), "at": rng.randint(0, EXPERTS, 8)}

    def run(self, x: Any, at: Any, w: Any) -> Any:
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            rows = at == expert
            out[rows] += torch.nn.functional.silu(x[rows] @ w[expert]).to(w.dtype)
        return out


class Changed(Experts):
    def run(self, x: Any, at: Any, w: Any) -> Any:
        return super().run(x, at, w.mul_(2.0))


@contextmanager
def without_free_memory() -> Iterator[None]:
    """Take the memory that earlier tests have left free in the heap."""
    taken = []
    with limited(0), suppress(RuntimeError):
        while True:
            taken.append(torch.empty(8 << 20, dtype=torch.uint8))
    yield
    del taken


@contextmanager
def limited(more_bytes: int) -> Iterator[None]:
    """Allow this process so much more memory than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("is_static", [False, True], ids=["inputs", "static"])
def test_a_reference_that_does_not_fit_is_computed_in_parts(is_static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calling.MODULES, "widened", True)
    spec = Experts()
    spec.is_static = is_static
    params = dict(spec.params(CallRng("cpu", 1, secret_statistics=False)))
    whole = InputBank("cpu", ReferenceEvaluator(spec, params))
    inputs = whole.inputs(2, "plain")
    expected = whole.reference.both(inputs)
    assert not whole.reference.in_parts
    del whole
    with without_free_memory(), limited(96 << 20):
        reference = ReferenceEvaluator(spec, params)
        found = reference.both(inputs)
        moved = reference.jittered(inputs, 2.0**-8, 1.0, seed=1)
    assert reference.in_parts
    assert not calling.MODULES["widened"]  # nor those of a function's file
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert 0 < float((moved - found[1]).abs().max()) < 0.1 * float(found[1].abs().max())


def test_a_second_copy_of_the_weights_that_does_not_fit_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calling.MODULES, "widened", True)
    spec = Experts()
    spec.is_static = True
    params = dict(spec.params(CallRng("cpu", 1, secret_statistics=False)))
    inputs = InputBank("cpu", ReferenceEvaluator(spec, params)).inputs(2, "plain")
    reference = ReferenceEvaluator(spec, params)
    _, truth = reference.both(inputs)
    assert not reference.in_parts
    with without_free_memory(), limited(32 << 20):
        moved = reference.jittered(inputs, 2.0**-8, 1.0, seed=1)
    assert reference.in_parts
    assert 0 < float((moved - truth).abs().max()) < 0.1 * float(truth.abs().max())


def test_one_that_changes_what_it_cannot_copy_is_refused() -> None:
    spec = Changed()
    inputs = InputBank("cpu", ReferenceEvaluator(spec, {})).inputs(2, "plain")
    with without_free_memory(), limited(96 << 20), pytest.raises(torch.OutOfMemoryError, match="changes a tensor"):
        ReferenceEvaluator(spec, {}).both(inputs)
