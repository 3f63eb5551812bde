"""Read a .ncu-rep with NVIDIA's own module and print it as JSON. Executed as a file, in a separate process.

    python ncu_child.py REPORT

Needs the package ncu-report, or the folder extras/python of Nsight Compute on PYTHONPATH. Prints one object per launch:
id, name, grid, block, device, cc, metrics {name: [value, unit]}, rules. Its native code reads an untrusted file, so it
never runs in the server.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main() -> int:
    ncu_report = importlib.import_module("ncu_report")  # a package that only machines for profiling have
    report = ncu_report.load_report(sys.argv[1])
    launches: list[dict[str, Any]] = []
    for number in range(report.num_ranges()):
        part = report.range_by_idx(number)
        launches += [_launch(part.action_by_idx(at), len(launches) + at) for at in range(part.num_actions())]
    json.dump(launches, sys.stdout)
    return 0


def _launch(action: Any, number: int) -> dict[str, Any]:
    metrics = {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            metrics[name] = [value, metric.unit() or ""]
    rules = action.rule_results_as_dicts() if hasattr(action, "rule_results_as_dicts") else []
    return {
        "id": number,
        "name": action.name(action.NameBase_FUNCTION) if hasattr(action, "NameBase_FUNCTION") else action.name(),
        "metrics": metrics,
        "rules": json.loads(json.dumps(rules, default=str)),
    }


if __name__ == "__main__":
    raise SystemExit(main())
