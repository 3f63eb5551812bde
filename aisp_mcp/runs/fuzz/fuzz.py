"""Test the candidates of one target at many sizes, without timing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.bench import sizes
from aisp_mcp.bench.sizes import Number, Sizes
from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge import candidate_needs, correctness, distributed
from aisp_mcp.judge.native import build
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records import CANDIDATE_NEEDS, Skip
from aisp_mcp.runs.fuzz.records import Configuration, FuzzReport
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import origin


@dataclass(frozen=True)
class FuzzRequest:
    """Arguments of test(). grid: texts such as S=448,512. strides: also inputs with other strides. limit:
    configurations.
    """

    grid: Sequence[str]
    boundaries: bool = True
    strides: bool = False
    limit: int = correctness.MAX_CONFIGURATIONS


def read_grid(texts: Sequence[str]) -> dict[str, list[Number]]:
    """Values by size; a text without a name adds to the size before it. Raises UsageError BAD_SIZES."""
    numbers: dict[str, list[Number]] = {}
    name = ""
    for part in (part for text in texts for part in text.split(",")):
        if "=" not in part and name:
            part = f"{name}={part}"
        name, number = sizes.value(part)
        numbers.setdefault(name, []).append(number)
    return numbers


def test(ctx: Context, pairs: Sequence[Pair], options: Options, request: FuzzRequest) -> FuzzReport:
    """Try every pair of one target at every size. Raises UsageError NOTHING_TO_TEST, BAD_SIZES and TOO_MANY_SIZES."""
    begin, given = time.monotonic(), read_grid(request.grid)
    ready, skipped = _ready(pairs, options)
    if not ready:
        raise _nothing(skipped)
    with _Fuzzers(pairs[0].baseline, options, request.limit) as fuzzers:
        own = fuzzers.of(options.size)
        grid = correctness.grid_of(given, *own.sizes())
        points = list(correctness.configurations(grid, request.boundaries))
        layouts = [False, True] if request.strides else [False]
        planned = [(Sizes(options.size, point, other), pair) for point in points for other in layouts for pair in ready]
        if len(planned) > (limit := request.limit // own.ranks):
            message = f"{len(planned)} configurations are more than {limit}."
            raise UsageError("TOO_MANY_SIZES", message, "Give fewer values, or no boundaries.")
        results = list(_each(ctx, fuzzers, planned))
    tested = [result for result in results if isinstance(result, Configuration)]
    unusable = list({result.target: result for result in results if isinstance(result, Failure)}.values())
    unmet = [result for result in results if isinstance(result, Skip)][:1]
    needing = list(_needing(tested, options.device))
    tested = [result for result in tested if result.candidate not in [skip.target for skip in needing]]
    skipped += [*unmet, *needing]
    if not tested and needing:
        raise _nothing(needing)
    if not tested:
        reasons = "; ".join([result.message for result in unusable] + [result.missing for result in skipped])[:500]
        raise UsageError("NOTHING_TO_TEST", f"The specification could be used at no size: {reasons}")
    failing = [result for result in tested if not result.passed]
    return FuzzReport(
        target=pairs[0].target,
        passed=not failing,
        tested=len(tested),
        failing=failing,
        unusable=unusable,
        skipped=skipped,
        notes=origin.notes(pairs[0].baseline) if failing else [],
        worst_error=max((result.worst_error or 0.0 for result in tested), default=None),
        sizes_tested=[dict(values) for values in dict.fromkeys(tuple(result.sizes.items()) for result in tested)],
        seconds=time.monotonic() - begin,
    )


def _nothing(skipped: Sequence[Skip]) -> UsageError:
    """The error of a target without a candidate that can run here."""
    reasons = "; ".join(dict.fromkeys(skip.missing for skip in skipped)) or "there is none next to the baseline"
    hint = None if skipped else "Name one with --candidate."
    return UsageError("NOTHING_TO_TEST", f"There is no candidate to test: {reasons}.", hint)


class _Fuzzers(ExitStack):
    """Fuzzers of one specification, one for each number of ranks in a grid."""

    def __init__(self, baseline: Path, options: Options, limit: int) -> None:
        super().__init__()
        self._baseline, self._how, self._limit = baseline, options, limit
        self._found: dict[int, correctness.Fuzzer] = {}

    def of(self, size: str) -> correctness.Fuzzer:
        """The one for that size; any of them if this machine has too few cores for its ranks, which each reports."""
        lacking = bool(distributed.lacks(self._baseline, size))
        ranks = distributed.declared(self._baseline) if lacking else distributed.ranks(self._baseline, size)
        if ranks not in self._found:
            fuzzer = correctness.Fuzzer(self._baseline, self._how, self._limit // ranks, ranks)
            self._found[ranks] = self.enter_context(fuzzer)
        return self._found[ranks]


def _ready(pairs: Sequence[Pair], options: Options) -> tuple[list[Pair], list[Skip]]:
    """The pairs that can run here, compiled if necessary. Raises BenchmarkError."""
    ready, skipped = list[Pair](), list[Skip]()
    for pair in pairs:
        native = build.is_native(pair.path) and build.lacks(pair.path, options.device)
        if missing := native or candidate_needs.lacks(pair.path, options.device, [pair.baseline.parent]):
            skipped.append(Skip(target=pair.label, code="NEEDS", missing=missing))
        else:
            ready.append(pair.compiled()[0])
    return ready, skipped


def _each(
    ctx: Context, fuzzers: _Fuzzers, planned: Sequence[tuple[Sizes, Pair]]
) -> Iterator[Configuration | Failure | Skip]:
    for index, (size, pair) in enumerate(planned):
        ctx.progress(index, len(planned), f"{pair.label} at {size.text()}")
        yield _test(fuzzers.of(size.text()), size, pair)


def _test(fuzzer: correctness.Fuzzer, size: Sizes, pair: Pair) -> Configuration | Failure | Skip:
    try:
        findings = fuzzer.test(pair.path, size)
    except BenchmarkError as error:
        if error.code.startswith("VERIFIER_"):
            raise
        return Failure(target=f"{pair.target} at {size.text()}", code=error.code, message=error.message)
    if findings.missing:
        return Skip(target=pair.target, code="NEEDS", missing=findings.missing)
    return Configuration(
        candidate=pair.label,
        sizes=dict(size.values),
        transposed=size.transposed,
        passed=not findings.errors,
        modes=findings.modes,
        worst_error=findings.worst if findings.worst < float("inf") else None,
        errors=findings.errors,
    )


def _needing(tested: Sequence[Configuration], device: str) -> Iterator[Skip]:
    """Skips of the candidates whose exceptions show a need at every size, and that were therefore never compared."""
    for label in dict.fromkeys(result.candidate for result in tested):
        own = [result for result in tested if result.candidate == label]
        needs = ["" if result.modes else candidate_needs.told_by(result.errors[0], device) for result in own]
        if all(needs):
            yield Skip(target=label, code=CANDIDATE_NEEDS, missing=str(needs[0]))


def chosen(roots: Sequence[Path], target: str, candidate: str | None, options: Options) -> list[Pair]:
    """The pairs that a target's name selects, or the target with any given file. Raises NotFound, UsageError
    ONE_TARGET.
    """
    if candidate:
        return [selection.candidate_pair(roots, target, candidate, options.folder)]
    pairs, broken = selection.pairs(roots, [target])
    if len({pair.target for pair in pairs}) > 1:
        raise UsageError("ONE_TARGET", f"{target[:80]!r} selects several targets.", "Name one of them.")
    if not pairs:
        reasons = "; ".join(problem.missing if isinstance(problem, Skip) else problem.message for problem in broken)
        raise UsageError("NOTHING_TO_TEST", f"There is no candidate to test: {reasons}")
    return pairs
