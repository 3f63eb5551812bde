"""Compare the serving planner with published MLPerf Inference rows, each GPU type and each configuration left out.

    python validation/run_serving_rates.py ROWS.csv [--out FILE] [--shares FILE]

ROWS.csv has the columns model, scenario, accelerator, accelerators_total, weights and tokens_per_s_per_accelerator.
Every row is asked through the tool `aisp_inference_vllm`. --shares writes constants fitted to all rows, with bands from
the configurations (GPU x model) left out. "MLPerf" is a trademark of MLCommons.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = str(Path(__file__).resolve().parents[1])
sys.path[:0] = [ROOT]

# Workload: listed model, mean prompt and output tokens, limits of server and of interactive in s (first token, others).
# The output of Llama 3.1 8B: the reference's result has 8,167,644 characters for 13,368 samples, 611 each or about 125
# tokens, of at most 128. The others were not read from a source: check them against the rules of MLPerf Inference v5.1.
# The prompt mean of Mixtral's follows from an efficiency that was reported for its results.
WORKLOADS: dict[str, tuple[str, int, int, tuple[float, float], tuple[float, float]]] = {
    "llama2-70b": ("llama-2-70b", 294, 294, (2.0, 0.2), (0.45, 0.04)),
    "llama3.1-405b": ("llama-3.1-405b", 9428, 684, (6.0, 0.175), (4.5, 0.08)),
    "llama3.1-8b": ("llama-3.1-8b", 778, 128, (2.0, 0.1), (0.5, 0.03)),
    "mixtral-8x7b": ("mixtral-8x7b", 390, 145, (2.0, 0.2), (2.0, 0.2)),
    "deepseek-r1": ("deepseek-v3", 800, 3886, (2.0, 0.08), (2.0, 0.08)),
}
ROUNDS = 5
# 90th percentile of Student's t for 1, 2, 3 … degrees of freedom.
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356)


class Row(NamedTuple):
    """One published result."""

    gpu: str
    model: str
    scenario: str
    weights: str
    gpus: int
    truth: float

    @property
    def configuration(self) -> tuple[str, str]:
        """GPU and model: rows of other submitters with both the same tell nothing new."""
        return self.gpu, self.model


class Answer(NamedTuple):
    """Predicted output tokens per second and GPU with its band; None: the planner declined."""

    point: float
    low: float
    high: float


def read(path: str) -> list[Row]:
    """Rows of language models; the GPU by its name in the planner's own table."""
    from aisp_mcp.machine.datasheets import load

    rows = []
    for line in csv.DictReader(Path(path).read_text("utf-8").splitlines()):
        model = line["model"].removesuffix("-99.9").removesuffix("-99")
        gpu = next(
            (g.sku for g in load.gpus() if g.sku.split("-")[0] in line["accelerator"].replace("-", " ").split()), None
        )
        if model in WORKLOADS and gpu is not None:
            truth = float(line["tokens_per_s_per_accelerator"])
            scenario, gpus = line["scenario"].lower(), int(line["accelerators_total"])
            rows.append(Row(gpu, model, scenario, line["weights"], gpus, truth))
    return rows


def ask(row: Row, shares: Any) -> Answer | str:
    """The planner's answer with these shares, or the code of its refusal."""
    from aisp_mcp.plan.data import tables
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch import execute, to_data

    name, prompt, output, server, interactive = WORKLOADS[row.model]
    args: dict[str, Any] = {"model": name, "gpu": row.gpu, "gpus": row.gpus, "weights": row.weights, "prompt": prompt}
    args |= {"output": output, "scenario": row.scenario}
    if row.scenario != "offline":
        args["ttft_s"], args["tpot_s"] = server if row.scenario == "server" else interactive
    with mock.patch.object(tables, "serving_shares", return_value=shares):
        envelope = execute("aisp_inference_vllm", args, Context())
    if envelope.error is not None:
        return str(to_data(envelope)["error"]["code"])
    answer = to_data(envelope)["result"]
    band = answer["band"]["rate.tokens_per_s_per_gpu"]
    # A submission has the fastest layout; a plan takes stages only where they gain more than its band.
    rates = [row["tokens_per_s_per_gpu"] for row in (answer["answer"]["rate"], *answer["answer"]["alternatives"])]
    fastest, chosen = max(rates), rates[0]
    return Answer(fastest, band["p10"] * fastest / chosen, band["p90"] * fastest / chosen)


def medians(rows: Iterable[Row]) -> list[Row]:
    """One row for each configuration and scenario, with the median of its submitters; more GPUs where they differ."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((*row.configuration, row.scenario), []).append(row)
    return [
        same[0]._replace(truth=statistics.median(r.truth for r in same), gpus=max(r.gpus for r in same))
        for same in groups.values()
    ]


def ratio(rows: Sequence[Row], shares: Any) -> float:
    """Geometric mean of published over predicted; 1 where nothing was answered."""
    answers = [(row, ask(row, shares)) for row in rows]
    logs = [math.log(row.truth / a.point) for row, a in answers if isinstance(a, Answer)]
    return math.exp(statistics.fmean(logs)) if logs else 1.0


def fit(rows: Sequence[Row]) -> Any:
    """Engine factor of each architecture, the two of experts, the shares of random arrivals, from these rows alone."""
    from aisp_mcp.machine.datasheets import load
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.data import tables
    from aisp_mcp.plan.serving.formats import preferred

    groups: dict[tuple[str, str], list[Row]] = {}
    typical = medians(rows)
    offline = [row for row in typical if row.scenario == "offline"]
    dense = [row for row in offline if row.model.startswith("llama")]
    for row in dense:
        facts = load.gpu(row.gpu)
        compute = preferred(lookup.architecture(WORKLOADS[row.model][0]), facts, row.weights)[0].compute
        groups.setdefault((facts.architecture, compute), []).append(row)
    shares = tables.serving_shares()
    used = [f for f in shares.factors if "MLPerf" not in f.basis]
    factors = [
        type(shares.factors[0])(architecture=arch, dtypes=[compute], factor=0.8, basis=_basis(mine))
        for (arch, compute), mine in groups.items()
    ]
    shares = shares.model_copy(update={"factors": [*factors, *used], "expert_loss": 0.0})
    shares = shares.model_copy(update={"arrival_share": dict.fromkeys(shares.arrival_share, 0.95)})
    for _ in range(ROUNDS):
        for at, mine in enumerate(groups.values()):
            factors[at] = factors[at].model_copy(update={"factor": factors[at].factor * ratio(mine, shares) ** 1.1})
        mean = statistics.fmean(f.factor for f in factors)
        shares = shares.model_copy(update={"factors": [*factors, *used], "default_factor": mean})
    return _arrivals(_experts(shares, offline), typical)


def _basis(rows: Sequence[Row]) -> str:
    models = ", ".join(sorted({row.model for row in rows}))
    return f"{models} on {rows[0].gpu}, MLPerf Inference v5.1 offline"


def _experts(shares: Any, offline: Sequence[Row]) -> Any:
    """The loss of models with experts, from all of them."""
    experts = [row for row in offline if not row.model.startswith("llama")]
    for _ in range(ROUNDS if experts else 0):
        loss = (1 + shares.expert_loss) / ratio(experts, shares) - 1
        shares = shares.model_copy(update={"expert_loss": max(0.0, loss)})
    return shares


def _arrivals(shares: Any, typical: Sequence[Row]) -> Any:
    for scenario in shares.arrival_share:
        mine = [row for row in typical if row.scenario == scenario]
        answers = [(row, ask(row, shares)) for row in mine]
        ratios = [row.truth / answer.point for row, answer in answers if isinstance(answer, Answer)]
        share = min(1.0, shares.arrival_share[scenario] * (statistics.median(ratios) if ratios else 1.0))
        shares = shares.model_copy(update={"arrival_share": {**shares.arrival_share, scenario: share}})
    return shares


def left_out(rows: Sequence[Row], key: str) -> list[tuple[Row, float]]:
    """Published over predicted of each configuration's median row, by shares fitted without its group."""
    left = []
    for group in dict.fromkeys(getattr(row, key) for row in rows):
        shares = fit([row for row in rows if getattr(row, key) != group])
        for row in medians(row for row in rows if getattr(row, key) == group):
            answer = ask(row, shares)
            if isinstance(answer, Answer):
                left.append((row, row.truth / answer.point))
    return left


def bands(rows: Sequence[Row]) -> dict[str, Any]:
    """Eight of ten residuals of configurations, and of GPU types, that were left out; see _tails."""
    from aisp_mcp.plan.data import tables
    from aisp_mcp.plan.records import Ratio

    by_group: dict[str, Any] = {
        name: tables.serving_shares().bands[name]
        for name in ("experts", "engines", "filled", "nodes", "first_token_vllm", "first_token_sglang")
    }  # of other publications, see their bases
    for key, suffix in (("configuration", ""), ("gpu", "_uncalibrated")):
        residuals = left_out(rows, key)
        for scenario in ("offline", "server", "interactive"):
            mine = [(row, value) for row, value in residuals if row.scenario == scenario] or residuals
            groups: dict[Any, list[float]] = {}
            for row, value in mine:
                groups.setdefault(getattr(row, key), []).append(math.log(value))
            half = _tails(list(groups.values()))
            what = "configurations" if key == "configuration" else "GPU types"
            basis = (
                f"residuals of {len(groups)} {what} in {scenario}, each left out of the fit; eight of ten by "
                "Student's t with as many degrees of freedom"
            )
            low, high = round(math.exp(-half), 3), round(math.exp(half), 3)
            by_group[scenario + suffix] = Ratio(p10=low, p90=high, basis=basis)
    return by_group


def _tails(groups: Sequence[Sequence[float]]) -> float:
    """Half width in logarithms that holds eight of ten: root mean square of residuals times Student's t."""
    if not groups:
        return math.log(2.0)
    square = statistics.fmean(statistics.fmean(value * value for value in group) for group in groups)
    return max(STUDENT[min(len(groups), len(STUDENT)) - 1] * math.sqrt(square), math.log(1.05))


def judged(rows: Sequence[Row], key: str) -> list[tuple[Row, Answer | str]]:
    """Every row answered with shares and bands from rows outside its group."""
    judged_rows = []
    for group in dict.fromkeys(getattr(row, key) for row in rows):
        outside = [row for row in rows if getattr(row, key) != group]
        shares = fit(outside)
        shares = shares.model_copy(update={"bands": bands(outside)})
        judged_rows += [(row, ask(row, shares)) for row in rows if getattr(row, key) == group]
    return judged_rows


def closed_form(rows: Sequence[Row]) -> list[tuple[Row, Answer | str]]:
    """The usual estimate for comparison: one share of the peak for all rows, the median of the other GPU types."""
    from aisp_mcp.machine.datasheets import load
    from aisp_mcp.plan import lookup, parameters
    from aisp_mcp.plan.serving.formats import preferred

    def whole(row: Row) -> float:
        name, prompt, output, _, _ = WORKLOADS[row.model]
        arch, facts = lookup.architecture(name), load.gpu(row.gpu)
        assert facts is not None
        peak = facts.peak[preferred(arch, facts, row.weights)[0].compute].dense * 1e12
        return peak / (2.0 * parameters.active(arch) * (1 + prompt / output))

    shares = {
        (gpu, scenario): statistics.median(
            row.truth / whole(row) for row in rows if row.gpu != gpu and row.scenario == scenario
        )
        for gpu, scenario in {(row.gpu, row.scenario) for row in rows}
    }
    points = ((row, whole(row) * shares[row.gpu, row.scenario]) for row in rows)
    return [(row, Answer(point, point, point)) for row, point in points]


def summary(answers: Sequence[tuple[Row, Answer | str]]) -> list[dict[str, Any]]:
    """Errors and coverage by scenario, GPU and model."""
    table = []
    for scenario in ("offline", "server", "interactive"):
        mine = [item for item in answers if item[0].scenario == scenario]
        table.append(_line(scenario, "all", "all", mine))
        gpus: dict[str, list[Any]] = {}
        configurations: dict[tuple[str, str], list[Any]] = {}
        for item in mine:
            gpus.setdefault(item[0].gpu, []).append(item)
            configurations.setdefault(item[0].configuration, []).append(item)
        table += [_line(scenario, gpu, "all", items) for gpu, items in gpus.items()]
        table += [_line(scenario, *names, items) for names, items in configurations.items()]
    return table


def _line(scenario: str, gpu: str, model: str, answers: Sequence[tuple[Row, Answer | str]]) -> dict[str, Any]:
    known = [(row, a) for row, a in answers if isinstance(a, Answer)]
    errors = [abs(a.point / row.truth - 1) for row, a in known]
    inside = [a.low <= row.truth <= a.high for row, a in known]
    return {
        "scenario": scenario,
        "gpu": gpu,
        "model": model,
        "rows": len(answers),
        "refused": len(answers) - len(known),
        "mdape": round(statistics.median(errors), 4) if errors else None,
        "mape": round(statistics.fmean(errors), 4) if errors else None,
        "inside": round(statistics.fmean(inside), 4) if inside else None,
    }


def report(title: str, table: Sequence[dict[str, Any]]) -> None:
    print(
        f"\n{title}\n{'scenario':12}{'GPU':10}{'model':15}{'rows':>5}{'refused':>8}{'MdAPE':>8}{'MAPE':>8}{'inside':>8}"
    )
    for row in table:
        shown = "".join(f"{row[k]:8.1%}" if row[k] is not None else "       –" for k in ("mdape", "mape", "inside"))
        print(f"{row['scenario']:12}{row['gpu']:10}{row['model']:15}{row['rows']:5}{row['refused']:8}{shown}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--out")
    parser.add_argument("--shares", help="Write the fitted constants here, as JSON.")
    options = parser.parse_args()
    from aisp_mcp.plan.data import tables
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch.loading import load_catalog

    load_catalog(Context().settings)
    rows = read(options.rows)
    if options.shares:
        shares = fit(rows)
        shares = shares.model_copy(update={"bands": bands(rows)})
        Path(options.shares).write_text(shares.model_dump_json(indent=1), "utf-8")
    tables_ = {
        "closed form with one share of the peak, each GPU type left out": summary(closed_form(rows)),
        "as shipped": summary([(row, ask(row, tables.serving_shares())) for row in rows]),
        "each GPU type left out": summary(judged(rows, "gpu")),
        "each configuration (GPU x model) left out": summary(judged(rows, "configuration")),
    }
    for title, table in tables_.items():
        report(title, table)
    if options.out:
        Path(options.out).write_text(json.dumps(tables_, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
