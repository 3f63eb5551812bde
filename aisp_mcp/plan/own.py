"""Own runs beside a plan: measured over predicted figures, kept for a model and a GPU.

A run corrects plans of the same model only. Over 2,700 published runs of vLLM, SGLang and TensorRT-LLM, one run brings
the median error of the time per token of others with the same model, GPU and engine from 18 to 12 %, and that of the
first token from 43 to 23 %; plans of other models on the same GPU it makes worse.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from aisp_mcp.machine.datasheets.load import normal
from aisp_mcp.plan.records import Ratio
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context

if TYPE_CHECKING:
    from aisp_mcp.store.measurements import Ceiling

KIND = "plan:"
MOST_APART = 4.0  # between the sequences in flight of a run and of a plan
# Measured over predicted, after one run of the same model and GPU: 7,841 pairs of runs whose sequences in flight are
# within a factor of 4 (silicon_sample.csv, ai-dynamo/aiconfigurator@095f58a5); steps: 64 pairs of layouts of a release
# (published-2026.json).
_PAIRS = "pairs of published runs with the same model, GPU and engine"
BANDS = {
    "rate.tpot_s": Ratio(p10=0.78, p90=1.30, basis=_PAIRS),
    "rate.ttft_s": Ratio(p10=0.57, p90=1.78, basis=_PAIRS),
    "best.step.total_s": Ratio(p10=0.82, p90=1.22, basis="pairs of published layouts of one release, model and GPU"),
}


class Calibrated(Record):
    """A figure of the plan, corrected by own runs. The plan's figures stay uncorrected."""

    figure: str
    value: float
    p10: float
    p90: float
    unit: str
    measured_over_predicted: float
    basis: str = Field(description="Runs, and what the range rests on.")


def remember(ctx: Context, figure: str, model: str, sku: str, ratio: float, detail: Mapping[str, object]) -> None:
    """Keep measured over predicted of one figure."""
    ctx.store.put_measurement(f"{KIND}{figure}:{_key(model)}", sku, ratio, "measured / predicted", dict(detail))


def of_stack(model: str, stack: str) -> str:
    """The name under which steps are kept: a stack's runs say nothing of another's."""
    return f"{model}@{stack}"


def beside(
    ctx: Context, model: str, sku: str, values: Mapping[str, float], in_flight: float | None = None
) -> list[Calibrated]:
    """The figures that own runs of this model and GPU correct: by the run nearest in sequences in flight."""
    if not (ctx.settings.home / "aisp.db").exists():  # reading does not create a store
        return []
    found = []
    for figure, value in values.items():
        kind = f"{KIND}{figure}:{_key(model)}"
        rows = [row for row in ctx.store.list_measurements(kind) if (row.kind, row.device) == (kind, sku)]
        near = [row for row in rows if _apart(row, in_flight) <= math.log(MOST_APART) + 1e-9]
        if not near:
            continue
        best = min(near, key=lambda row: _apart(row, in_flight))  # of equally near ones the newest, which comes first
        band, corrected = BANDS[figure], value * best.value
        found.append(
            Calibrated(
                figure=figure,
                value=corrected,
                p10=corrected * band.p10,
                p90=corrected * band.p90,
                unit="s",
                measured_over_predicted=best.value,
                basis=f"{best.detail.get('run')}, {_day(best)}; {band.basis}",
            )
        )
    return found


def _apart(row: Ceiling, in_flight: float | None) -> float:
    then = row.detail.get("in_flight")
    return abs(math.log(float(then) / in_flight)) if then and in_flight else 0.0


def _key(model: str) -> str:
    return normal(model).replace(" ", "-").rpartition("/")[2]


def _day(row: Ceiling) -> str:
    return datetime.datetime.fromtimestamp(row.measured_at, datetime.UTC).date().isoformat()
