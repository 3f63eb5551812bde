"""Compare two imports: an interval if both have samples, otherwise what is missing for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from aisp_mcp.runs.imports.reading import raw_hint
from aisp_mcp.runs.imports.records import Figure, FigureDifference, Import, ImportComparison
from aisp_mcp.server.text.escape import short

Key = tuple[str, str, str]

DEFINITION = (
    "ratio = candidate / baseline in the figure's unit. Interval: 95 % percentile bootstrap of the ratio of medians,"
    " over the samples of one session each; it says nothing about another process, machine or day."
)
SHOWN = 10  # figures of one file alone
_ORDER = ("worse", "better", "different", "no interval", "not resolved", "not comparable")


def compare(baseline: Import, candidate: Import) -> ImportComparison:
    """Every figure that both contain. Never a verdict: neither was measured here."""
    before, after = _by_key(baseline), _by_key(candidate)
    rows = [_difference(before[key], after[key]) for key in before if key in after]
    rows.sort(key=lambda row: (_ORDER.index(row.finding), -abs((row.ratio or 1) - 1)))
    return ImportComparison(
        sentence=_sentence(rows, baseline, candidate),
        baseline=f"{baseline.label} ({baseline.id})",
        candidate=f"{candidate.label} ({candidate.id})",
        differences=rows,
        only_in_baseline=_shown([key for key in before if key not in after]),
        only_in_candidate=_shown([key for key in after if key not in before]),
        missing=_missing(rows, baseline, candidate),
        cautions=_cautions(baseline, candidate),
        notes=[f"{file.label}: {note}" for file in (baseline, candidate) for note in file.contents.notes],
        definition=DEFINITION,
    )


def _by_key(imported: Import) -> dict[Key, Figure]:
    return {figure.key: figure for figure in imported.contents.figures}


def _shown(keys: list[Key]) -> list[str]:
    """The first of these figures, and the number of the others."""
    titles = [", ".join(part for part in key if part) for key in keys[:SHOWN]]
    return [*titles, f"and {len(keys) - SHOWN} more"] if len(keys) > SHOWN else titles


def _difference(before: Figure, after: Figure) -> FigureDifference:
    failure = _failure(before, "the baseline") or _failure(after, "the candidate")
    bounds = None if failure else ratio_interval(before.samples, after.samples)
    values = (median(before.samples), median(after.samples)) if bounds else (before.value, after.value)
    finding = "not comparable" if failure else _finding(before, bounds)
    doubt = before.doubt or after.doubt
    if doubt and finding in ("better", "worse", "different"):
        finding, failure = "not comparable", doubt
    return FigureDifference(
        name=before.name,
        metric=before.metric,
        unit=before.unit,
        baseline=values[0],
        candidate=values[1],
        ratio=values[1] / values[0] if values[0] and (failure in (None, doubt)) else None,
        interval=list(bounds) if bounds else [],
        finding=finding,
        samples=[len(before.samples), len(after.samples)],
        settings=before.settings,
        why=failure,
    )


def _failure(figure: Figure, side: str) -> str | None:
    """Why a figure measures no successful run: what its file says, or a value of 0."""
    if figure.failed:
        return f"{side}: {figure.failed}"
    if figure.value == 0:
        return f"{side} is 0, which no ratio can use"
    zeros = sum(sample <= 0 for sample in figure.samples) if figure.unit == "s" else 0
    return f"{zeros} of {len(figure.samples)} samples of {side} are 0 s" if zeros else None


def _finding(figure: Figure, bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return "no interval"
    if bounds[0] <= 1 <= bounds[1]:
        return "not resolved"
    if figure.better == "unknown":
        return "different"
    return "better" if (bounds[1] < 1) == (figure.better == "lower") else "worse"


def _missing(rows: list[FigureDifference], baseline: Import, candidate: Import) -> list[str]:
    """For each file without enough samples: the number of figures affected, and how to make its tool record samples."""
    messages = []
    for index, file in enumerate((baseline, candidate)):
        lacking = sum(
            not row.interval and row.finding != "not comparable" and row.samples[index] < MIN_SAMPLES for row in rows
        )
        if lacking:
            need = f"{file.label} contains fewer than {MIN_SAMPLES} samples of {lacking} of {len(rows)} figures"
            messages.append(f"{need}: {raw_hint(file.format)}.")
    return messages


def _cautions(baseline: Import, candidate: Import) -> list[str]:
    cautions = ["Both were measured elsewhere, at different times: this is not a verdict."]
    if baseline.format != candidate.format:
        cautions.append(f"{baseline.format} and {candidate.format} may define a metric of the same name differently.")
    machines = [imported.contents.machine for imported in (baseline, candidate)]
    if machines[0] != machines[1]:
        known = [machine or "a machine that the file does not name" for machine in machines]
        cautions.append(f"The machines differ ({known[0]}; {known[1]}): the ratios compare them as well.")
    elif machines[0] is None:
        cautions.append("Neither file names its machine.")
    return cautions


def _sentence(rows: list[FigureDifference], baseline: Import, candidate: Import) -> str:
    if not rows:
        return f"{candidate.label} and {baseline.label} have no figure in common."
    count = {finding: sum(row.finding == finding for row in rows) for finding in _ORDER}
    words = [f"{number} {finding}" for finding, number in count.items() if number]
    first = rows[0]
    title = f"{short(first.name, 60)} {first.metric}"
    if first.ratio is None:
        return f"Of {len(rows)} figures in both: {', '.join(words)}. {title} is not comparable: {first.why}."
    about = f"{title}: {first.ratio:.3g} times {baseline.label}"
    interval = f" [{first.interval[0]:.3g}, {first.interval[1]:.3g}]" if first.interval else ", without an interval"
    return f"Of {len(rows)} figures in both: {', '.join(words)}. {about}{interval}."


# --- bootstrap interval of a ratio of medians

# The median of a resample is an order statistic, so its index is drawn from a beta distribution instead of drawing the
# resample: exact, and as fast for 10,000 samples as for ten.


MIN_SAMPLES = 6  # with fewer, even the range of all samples covers the median in less than 95 % of cases
RESAMPLES = 2000
LEVEL = 0.95


def ratio_interval(baseline: Sequence[float], candidate: Sequence[float]) -> tuple[float, float] | None:
    """95 % percentile interval of median(candidate) / median(baseline); None below MIN_SAMPLES or for a median of 0."""
    if min(len(baseline), len(candidate)) < MIN_SAMPLES:
        return None
    draw = random.Random(0)  # the same files always give the same interval
    below, above = sorted(baseline), sorted(candidate)
    ratios = list[float]()
    for _ in range(RESAMPLES):
        divisor = _resampled_median(below, draw)
        if not divisor:
            return None
        ratios.append(_resampled_median(above, draw) / divisor)
    ratios.sort()
    tail = round((1 - LEVEL) / 2 * RESAMPLES)
    return ratios[tail], ratios[-1 - tail]


def _resampled_median(values: Sequence[float], draw: random.Random) -> float:
    """Median of a resample of sorted values with replacement."""
    count = len(values)
    middle = (count + 1) // 2
    position = draw.betavariate(middle, count + 1 - middle)
    lower = values[min(count - 1, int(position * count))]
    if count % 2:
        return lower
    position += (1 - position) * draw.betavariate(1, count - middle)
    return (lower + values[min(count - 1, int(position * count))]) / 2
