"""Compare two command lines for each value of a parameter, written in braces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from aisp_mcp.errors import UsageError
from aisp_mcp.gate.commands import judge
from aisp_mcp.gate.commands.judge import CommandRequest
from aisp_mcp.gate.commands.records import CommandComparison, ScanPoint
from aisp_mcp.judge.records.verdict import Verdict, all_passed

MAX_VALUES = 100
# A scan is represented by the worst of its comparisons, in this order.
_WORST_FIRST = (
    *(Verdict.INVALID, Verdict.INCORRECT, Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.SAME, Verdict.FASTER),
)
Report = Callable[[float, float, str], None]


@dataclass(frozen=True)
class Parameter:
    """A name, and its values as text."""

    name: str
    values: Sequence[str]


def parameter(scan: Sequence[str]) -> Parameter | None:
    """The parameter of NAME MIN MAX [STEP]; None if there is none. Raises UsageError BAD_SCAN."""
    if not scan:
        return None
    name, *texts = scan
    if not name.isidentifier() or name == "input":
        raise _bad(f"{name[:40]!r} cannot be the name of a parameter.")
    return Parameter(name, _range(texts))


def _bad(message: str) -> UsageError:
    return UsageError("BAD_SCAN", message, "Such as --parameter-scan n 1000 4000 1000.")


def _range(texts: Sequence[str]) -> list[str]:
    """Values from the first to the second in steps of the third, or of 1."""
    try:
        numbers = [Decimal(text) for text in texts]
    except InvalidOperation:
        raise _bad(f"{' '.join(texts)[:60]!r} are not numbers.") from None
    if len(numbers) not in (2, 3) or not all(number.is_finite() for number in numbers):
        raise _bad("A range has two numbers, and a step if it is not 1.")
    low, high, step = *numbers[:2], numbers[2] if len(numbers) == 3 else Decimal(1)
    if step <= 0 or low > high or (high - low) / step >= MAX_VALUES:
        raise _bad(f"From {low} to {high} in steps of {step} is not a range of at most {MAX_VALUES} values.")
    return [str(low + index * step) for index in range(int((high - low) / step) + 1)]


def compare(request: CommandRequest, scanned: Parameter | None, report: Report) -> CommandComparison:
    """One comparison, or one for each value; then the worst is returned, with all of them. Raises as judge.compare."""
    if scanned is None:
        return judge.compare(request, report)
    hole = f"{{{scanned.name}}}"
    if not any(hole in word for word in (*request.baseline, *request.candidate)):
        raise _bad(f"Neither command has {hole}.")
    measured_points = []
    for index, value in enumerate(scanned.values):
        chosen = replace(
            request,
            baseline=[word.replace(hole, value) for word in request.baseline],
            candidate=[word.replace(hole, value) for word in request.candidate],
        )
        measured_points.append(
            judge.compare(chosen, _share(report, index, len(scanned.values), f"{scanned.name}={value}"))
        )
    worst = min(measured_points, key=lambda comparison: _WORST_FIRST.index(comparison.verdict))
    points = [_point(value, comparison) for value, comparison in zip(scanned.values, measured_points, strict=True)]
    passed = all_passed(comparison.verdict for comparison in measured_points)
    return worst.model_copy(update={"parameter": scanned.name, "scan": points, "passed": passed})


def _share(report: Report, index: int, count: int, label: str) -> Report:
    """Progress of one value as a share of the whole scan."""
    return lambda done, of, message: report(index + done / max(of, 1), count, f"{label}: {message}")


def _point(value: str, comparison: CommandComparison) -> ScanPoint:
    names = set(ScanPoint.model_fields) - {"value", "median_s"}
    medians = [figures.median_s for figures in (comparison.baseline, comparison.candidate) if figures is not None]
    return ScanPoint(value=value, median_s=medians, **{name: getattr(comparison, name) for name in names})
