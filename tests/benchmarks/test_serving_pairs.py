"""Every shipped engine: the tokens of two traces, whose requests come one at a time, against the float64 reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agreement import few, targets

from aisp_mcp.bench import Request
from aisp_mcp.suites.records import Target

TARGETS = [target for target in targets() if target.goal in ("latency", "throughput")]
NAMES = [target.name for target in TARGETS]
QUICK = {"ch15:serve_chunked_prefill", "ch16:serve_paged_kv", "ch17:serve_admission"}

pytestmark = pytest.mark.torch


class Trickle:
    """A feed that hands out one request per look."""

    def __init__(self, requests: list[Request]) -> None:
        self._left = requests[::-1]

    def poll(self) -> list[Request]:
        return [self._left.pop()] if self._left else []

    wait = poll

    @property
    def closed(self) -> bool:
        return not self._left


class Shapes:
    """An Rng whose tensors have no values."""

    device = "meta"

    def randn(self, *shape: int) -> Any:
        import torch

        return torch.empty(shape, device=self.device)


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_the_reference_takes_less_than_4_gib_at_default_sizes(target: Target) -> None:
    """Weights in float32 and float64, and scores in float64: the product, the softmax, its copy and a mask of bytes."""
    from aisp_mcp.bench.decoder import HEAD
    from aisp_mcp.judge.protocol.module_loader import load_spec
    from aisp_mcp.judge.verifier.serving import AT_ONCE, passes

    spec: Any = load_spec(Path(target.path), "default")
    weights = 12 * sum(param.numel() for param in spec.params(Shapes()).values())
    longest = spec.max_prompt + spec.max_tokens
    rows = next(passes([longest] * AT_ONCE)).stop
    scores = 25 * rows * longest**2 * spec.decoder.width // HEAD
    print(f"weights {weights / 2**30:.2f} GiB, scores of {rows} rows {scores / 2**30:.2f} GiB")
    assert weights + scores < 4 << 30


@pytest.mark.parametrize("target", few(TARGETS, NAMES, {*NAMES} - QUICK))
def test_engines_emit_the_tokens_of_the_reference(target: Target) -> None:
    import torch

    from aisp_mcp.judge.candidate.serving import entry
    from aisp_mcp.judge.protocol.draws.rng import CallRng
    from aisp_mcp.judge.protocol.module_loader import common_of, load_spec
    from aisp_mcp.judge.verifier.reference import ReferenceEvaluator
    from aisp_mcp.judge.verifier.serving import ServingTruth

    torch.set_num_threads(1)
    spec: Any = load_spec(Path(target.path), "small")
    weights = dict(spec.params(CallRng("cpu", 2, secret_statistics=False)))
    reference = ReferenceEvaluator(spec, weights)
    truth = ServingTruth(spec, "cpu")
    truth.open(reference, 3)
    assert target.variants
    for variant in [None, *target.variants]:
        path = variant.path if variant else target.path
        common = str(common_of(Path(target.path)))
        serve, static = entry({"path": path, "baseline": not variant, "size": "small", "common": common}, weights)
        for seed in (4,):
            trace = truth.draw(seed)["requests"]
            answers: dict[int, list[int]] = {arrival["id"]: [] for arrival in trace}
            requests = [Request(arrival["id"], tuple(arrival["prompt"]), arrival["tokens"]) for arrival in trace]
            with torch.inference_mode():
                serve(
                    Trickle(requests),
                    lambda identity, token, answers_by_id=answers: answers_by_id[identity].append(token),
                    **static,
                )
            assert [len(answers[arrival["id"]]) for arrival in trace] == [arrival["tokens"] for arrival in trace]
            assert truth.check(reference, trace, list(answers.values()))["failure"] is None, variant
