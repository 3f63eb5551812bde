"""Requests of a serving benchmark, and the figures that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, stdev

from aisp_mcp.runs.imports.records import Better, Figure

SERVING = "serving"
_FEW = 0.01  # failed requests that move a median by less than an interval is wide


@dataclass(frozen=True)
class Request:
    """One answered request, in seconds. tpot_s: after the first token; None for answers of one token.

    begin_s: when it was sent, on the client's clock; None if the file does not contain it. text: the answer; None if
    the client does not keep it.
    """

    ttft_s: float
    latency_s: float
    output_tokens: int
    begin_s: float | None = None
    text: str | None = None

    @property
    def characters(self) -> int | None:
        """Characters of the answer without white space."""
        return None if self.text is None else len("".join(self.text.split()))

    @property
    def tpot_s(self) -> float | None:
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None


def lost(figures: list[Figure], failed: int, sent: int) -> list[Figure]:
    """The figures, marked as failed if too many requests failed: those that succeeded had less competition."""
    if not failed or failed <= _FEW * sent:
        return figures
    return [figure.model_copy(update={"failed": f"{failed} of {sent} requests failed"}) for figure in figures]


_LATENCIES: dict[str, Callable[[Request], float | None]] = {
    "ttft": lambda request: request.ttft_s,
    "tpot": lambda request: request.tpot_s,
    "e2e latency": lambda request: request.latency_s,
}


def latencies(requests: Sequence[Request], title: str, settings: Mapping[str, str]) -> list[Figure]:
    """Medians of TTFT, TPOT and end-to-end latency over the requests, which are the samples."""
    figures = []
    for metric, of in _LATENCIES.items():
        values = [value for request in requests if (value := of(request)) is not None]
        if values:
            figures.append(
                Figure(
                    name=title, metric=metric, unit="s", better="lower", value=median(values), statistic="median",
                    samples=values, sample_of="request", count=len(values),
                    spread=stdev(values) if len(values) > 1 else None, parameters=dict(settings),
                )
            )  # fmt: skip
    return figures


def rate(title: str, metric: str, unit: str, value: float, settings: Mapping[str, str]) -> Figure:
    """A rate over a whole run: one number, without samples."""
    better: Better = "higher"
    return Figure(
        name=title, metric=metric, unit=unit, better=better, value=value, statistic="total", parameters=dict(settings)
    )
