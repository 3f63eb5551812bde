"""Hold the training planner against MLPerf Training rows, to which no constant is fitted.

    python validation/run_training.py [ROWS.csv] [--out FILE]

ROWS.csv: org, system, model, global_batch, median_step_s, median_throughput_samples_s (results of MLPerf Training v5.1;
MLPerf is a trademark of MLCommons); without it, the rows that are recorded. The planner chooses the layout itself;
nothing of a submission but model, GPUs and batch goes in.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

FILE = Path(__file__).resolve().parents[1] / "results" / "mlperf-training-steps.json"
MODELS = {"llama31_8b": "llama-3.1-8b", "llama31_405b": "llama-3.1-405b", "llama2_70b_lora": "llama-2-70b"}
GPUS = {"B300": "B300-SXM", "B200": "B200-SXM", "H200": "H200-SXM", "H100": "H100-SXM", "MI355X": "MI355X",
        "MI325X": "MI325X", "MI300X": "MI300X", "GB200": "GB200", "GB300": "GB300"}  # fmt: skip
SEQUENCE, LORA_RANK = 8192, 16


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows with a step time: model, gpu, gpus, batch, seconds."""
    rows_found = []
    for raw in csv.DictReader(path.open()):
        batch = int(raw["global_batch"] or 0)
        rate = float(raw["median_throughput_samples_s"] or 0)
        seconds = float(raw["median_step_s"] or 0) or (batch / rate if rate else 0.0)
        # The longest name that occurs: GB200 before B200.
        names = sorted((name for name in GPUS if name.lower() in raw["system"].lower()), key=len)
        if not seconds or not names or raw["model"] not in MODELS:
            continue
        system = raw["system"]
        nodes = re.search(r"\.n(\d+)$", system) or re.match(r"(\d+)x", system)
        gpus = 8 * (int(nodes[1]) if nodes else 1)
        rows_found.append({"org": raw["org"], "system": system, "model": raw["model"], "gpu": GPUS[names[-1]],
                      "gpus": gpus, "batch": batch, "seconds": seconds})  # fmt: skip
    return rows_found


def predict(row: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the fastest layout that fits, and that layout."""
    from aisp_mcp.machine.datasheets import load
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.training import calibration, distributed, step
    from aisp_mcp.plan.training.layout import candidates
    from aisp_mcp.plan.training.recipe import RECIPES

    facts, recipe = load.gpu(row["gpu"]), RECIPES["fp8"]
    assert facts is not None
    if row["model"].endswith("lora"):
        recipe = recipe.model_copy(update={"lora_rank": LORA_RANK})
    arch, shares = lookup.architecture(MODELS[row["model"]]), calibration.shares()
    per_node = lookup.link_domain(facts)
    task = distributed.Task(arch, facts, row["gpus"], per_node, SEQUENCE, row["batch"], recipe)
    job = step.StepJob(arch, recipe, SEQUENCE, facts, shares, step.fabric(facts, shares, per_node))
    layouts = candidates(arch, row["gpus"], per_node, row["batch"], SEQUENCE)
    best = min((distributed.choose(task, item, job) for item in layouts), key=distributed.merit)
    assert best.step is not None
    return {"seconds": best.step.total_s, "layout": best.layout.model_dump(), "fits": best.fits}


def error(ratio: float) -> float:
    """Absolute relative error of a prediction from measured over predicted."""
    return abs(1 / ratio - 1)


def summary(ratios: list[float]) -> dict[str, Any]:
    """Errors and quantiles of measured over predicted."""
    cuts = statistics.quantiles(ratios, n=10, method="inclusive")
    errors = [error(ratio) for ratio in ratios]
    return {"rows": len(ratios), "mdape": statistics.median(errors), "mape": statistics.fmean(errors),
            "p10": cuts[0], "p90": cuts[-1]}  # fmt: skip


def by(table: list[dict[str, Any]], ratios: list[float], key: str) -> dict[str, dict[str, float]]:
    """Median and largest error for each value of a column."""
    errors: dict[str, list[float]] = {}
    for row, ratio in zip(table, ratios, strict=True):
        errors.setdefault(row[key], []).append(error(ratio))
    return {name: {"rows": len(e), "mdape": statistics.median(e), "largest": max(e)} for name, e in errors.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = ("org", "system", "model", "gpu", "gpus", "batch", "seconds")
    recorded = [{name: row[name] for name in facts} for row in json.loads(FILE.read_text("utf-8"))["rows"]]
    table = rows(options.rows) if options.rows else recorded
    chosen = [predict(row) for row in table]
    ratios = [row["seconds"] / prediction["seconds"] for row, prediction in zip(table, chosen, strict=True)]
    document = {
        "what": "MLPerf Training v5.1 steps and predictions (validation/run_training.py); "
        "MLPerf is a trademark of MLCommons",
        "all": summary(ratios),
        "by_gpu": by(table, ratios, "gpu"),
        "by_model": by(table, ratios, "model"),
        "rows": [{**row, "predicted_s": prediction["seconds"], "layout": prediction["layout"], "ratio": ratio}
                 for row, prediction, ratio in zip(table, chosen, ratios, strict=True)],
    }  # fmt: skip
    text = json.dumps(document, indent=1) + "\n"
    if options.out:
        options.out.write_text(text)
    print(json.dumps({k: v for k, v in document.items() if k != "rows"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
