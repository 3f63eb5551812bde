"""Reference for serving benchmarks: secret traces, and the check of emitted tokens against the decoder in float64.

Greedy decoding is a chain: one token that rounding changes also changes all later ones. So tokens are not compared with
a second generation. One pass over prompt and emitted tokens gives the logits after each of them. The next emitted token
must have the best logit, or one that is lower by no more than rounding explains.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from aisp_mcp.bench import ServingBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.layout import Layout, RingShape
from aisp_mcp.judge.protocol.messages import CheckAnswer, PlannedRequest, ServingTerms
from aisp_mcp.judge.protocol.module_loader import contract
from aisp_mcp.judge.statistics import P99_CALLS
from aisp_mcp.judge.verifier.evaluation import evaluate
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator

# Answers per pass of the reference; fewer if rows times the square of the longest one exceed SCORES, of 8 bytes for
# each head in float64. Chosen: 8 MiB per head.
AT_ONCE, SCORES = 16, 1 << 20
TRIED = 8  # requests whose first tokens must not all be the same; chosen


class ServingTruth:
    """Traces and answers of one specification."""

    def __init__(self, spec: ServingBenchmark, device: str) -> None:
        self._spec, self._device = spec, device
        self._shape = RingShape(spec.max_requests, spec.max_prompt, spec.max_tokens)
        self.layout = Layout((), (), (), capacity=1)

    def open(self, reference: ReferenceEvaluator, seed: int) -> dict[str, Any]:
        """Fix the layout and try a trace. Raises BenchmarkError BAD_TRACE, DEGENERATE."""
        params = tuple(contract(name, tensor) for name, tensor in reference.params.items())
        self.layout = Layout(params, (), (), capacity=1, ring=self._shape)
        requests = self.draw(seed)["requests"][:TRIED]
        begin, prompts, first = time.perf_counter(), [request["prompt"] for request in requests], set()
        for part in passes([len(prompt) for prompt in prompts]):
            self._logits(reference, prompts[part], wide=True)  # the first pass in float64 takes a second to start
            rows = zip(self._logits(reference, prompts[part]), prompts[part], strict=True)
            first |= {int(row[len(prompt) - 1].argmax()) for row, prompt in rows}
        seconds = (time.perf_counter() - begin) / len(requests)
        if len(first) == 1 and len(requests) > 1:
            message = f"The first token of {len(requests)} requests is the same."
            raise BenchmarkError("DEGENERATE", message, "Make a decoder whose tokens depend on the prompt.")
        spec, slo = self._spec, self._spec.slo
        terms = ServingTerms(
            metric=spec.latency.metric,
            percentile=spec.latency.percentile,
            slo_ttft=slo.ttft,
            slo_tpot=slo.tpot,
            time_unit=spec.time_unit,
            max_regression=spec.max_regression,
        )
        return {
            "layout": self.layout.to_json(),
            "call_s": seconds,
            "serving": terms,
            "oracle": "teacher-forced float64",
        }

    def draw(self, seed: int) -> dict[str, list[PlannedRequest]]:
        """The trace of that seed: the same seed gives the same trace again. Raises BenchmarkError BAD_TRACE."""
        arrivals = self._spec.trace(CallRng("cpu", seed, secret_statistics=False))
        identities = random.Random(seed).sample(range(1 << 48), len(arrivals))
        self._refuse_bad(arrivals)
        rows = zip(identities, arrivals, strict=True)
        planned_requests = [
            PlannedRequest(id=i, at=float(a.at), prompt=[*map(int, a.prompt)], tokens=int(a.tokens)) for i, a in rows
        ]
        return {"requests": planned_requests}

    def _refuse_bad(self, arrivals: Any) -> None:
        spec, words = self._spec, ""
        if not 0 < len(arrivals) <= spec.max_requests:
            words = f"{len(arrivals)} requests, from 1 to {spec.max_requests} are allowed"
        for number, arrival in enumerate(arrivals):
            if not 0 < len(arrival.prompt) <= spec.max_prompt or not 0 < arrival.tokens <= spec.max_tokens:
                words = f"request {number} has {len(arrival.prompt)} tokens and wants {arrival.tokens}"
            elif not all(0 <= token < spec.vocabulary for token in arrival.prompt):
                words = f"request {number} has a token outside the vocabulary"
        values = sum(arrival.tokens - 1 for arrival in arrivals) if spec.latency.metric == "itl" else len(arrivals)
        if spec.goal == "latency" and spec.latency.percentile >= 99 and values < P99_CALLS:
            words = f"percentile {spec.latency.percentile:g} of {values} values, {P99_CALLS} are needed"
        if any(not 0 <= arrival.at <= other.at for arrival, other in itertools.pairwise(arrivals)):
            words = "arrivals are not in order"
        if words:
            raise BenchmarkError("BAD_TRACE", f"The trace breaks its bounds: {words}.", "See docs/serving.md.")

    def check(
        self, reference: ReferenceEvaluator, requests: list[PlannedRequest], answers: list[list[int]]
    ) -> CheckAnswer:
        """Compare every token of every request. answers: the emitted tokens of each request, in order."""
        worst = 0.0
        lengths = [len(request["prompt"]) + len(tokens) for request, tokens in zip(requests, answers, strict=True)]
        for part in passes(lengths):
            prompts = [request["prompt"] for request in requests[part]]
            failures = self._compare(reference, prompts, answers[part])
            for number, (ratio, failure) in enumerate(failures, part.start):
                worst = max(worst, ratio)
                if failure:
                    words = f"request {number} of {len(requests)}: {failure}"
                    return CheckAnswer(failure=words, code="incorrect_token", checked=number + 1, ratio=ratio)
        return CheckAnswer(failure=None, code=None, checked=len(requests), ratio=worst)

    def _compare(
        self, reference: ReferenceEvaluator, prompts: list[list[int]], answers: list[list[int]]
    ) -> Iterator[tuple[float, str | None]]:
        """Return (worst distance to the best logit in units of the baseline's own error, failure) per answer."""
        import torch

        inside = [[token if 0 <= token < self._spec.vocabulary else 0 for token in tokens] for tokens in answers]
        whole = [prompt + tokens[:-1] for prompt, tokens in zip(prompts, inside, strict=True)]
        truths, own = self._logits(reference, whole, wide=True), None
        for row, (prompt, tokens) in enumerate(zip(prompts, inside, strict=True)):
            positions = slice(len(prompt) - 1, len(whole[row]))
            truth = truths[row, positions].double()
            emitted = torch.tensor(tokens, device=truth.device)
            short = truth.amax(-1) - truth.gather(-1, emitted[:, None])[:, 0]
            if tokens != answers[row]:
                yield math.inf, "a token is outside the vocabulary"
            elif not bool((short > 0).any()):
                yield 0.0, None
            else:
                own = self._logits(reference, whole) if own is None else own
                yield self._judge(tokens, truth, short, float((own[row, positions].double() - truth).abs().max()))

    def _judge(self, tokens: list[int], truth: Any, short: Any, own: float) -> tuple[float, str | None]:
        """The same for one answer with tokens other than the best. own: the baseline's largest error there."""
        tolerance = self._spec.tolerance
        allowed = max(tolerance.error_ratio * own, tolerance.absolute)
        ratio = float(short.max()) / max(own, 1e-300)
        if not (wrong := (short > allowed).nonzero().flatten().tolist()):
            return ratio, None
        index = wrong[0]
        best = int(truth[index].argmax())
        return ratio, (
            f"token {index} is {tokens[index]}, the decoder gives {best}: its logit is {float(short[index]):.3g} below "
            f"the best, rounding explains {allowed:.3g}"
        )

    def _logits(self, reference: ReferenceEvaluator, rows: list[list[int]], wide: bool = False) -> Any:
        """Logits (batch, longest row, vocabulary) after each token, in the baseline's types or in float64."""
        import torch

        longest = max(map(len, rows))
        given = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=self._device)
        with torch.inference_mode():
            if wide:
                return evaluate(lambda: self._spec.logits(given, **reference.wide))
            return self._spec.logits(given, **reference.params)


def passes(lengths: Sequence[int]) -> Iterator[slice]:
    """Group consecutive rows into passes of the reference. lengths: tokens per row. A row beyond SCORES has its own
    pass.
    """
    begin = longest = 0
    for end, length in enumerate(lengths):
        longest = max(longest, length)
        if end > begin and (end - begin == AT_ONCE or (end - begin + 1) * longest**2 > SCORES):
            yield slice(begin, end)
            begin, longest = end, length
    yield slice(begin, len(lengths))
