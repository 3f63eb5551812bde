"""Ask the planners every published number of a file, as printed, and record what they answer.

    python validation/run_published.py [FILE] [--write]

A row has a tool, its arguments, the path of a figure in the answer, the published value and a tolerance. Verdicts:
`within` the tolerance, `off` beyond it, `declined` when the tool answers no such figure. No constant of a planner is
fitted to these rows. --write stores answers and verdicts in the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
FILE = ROOT / "results" / "published-numbers.json"
VERDICTS = ("within", "off", "declined")


def ask(row: dict[str, Any]) -> dict[str, Any]:
    """The figure of a row with its band, or the code of the refusal."""
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch import execute, to_data

    answer = to_data(execute(row["tool"], row["args"], Context()))
    if answer["status"] != "ok":
        return {"verdict": "declined", "code": answer["error"]["code"]}
    result = answer["result"]
    value = figure(result["answer"], row)
    if value is None:
        return {"verdict": "declined", "code": "NO_FIGURE"}
    close = abs(value / row["published"] - 1) <= row["tolerance"]
    found: dict[str, Any] = {"verdict": "within" if close else "off", "answer": float(f"{value:.6g}")}
    band = result["band"].get(row["figure"]) or _step_band(result, row)
    if band:
        found["inside"] = band["p10"] <= row["published"] <= band["p90"]
    return found


def figure(answer: dict[str, Any], row: dict[str, Any]) -> float | None:
    """The number at a path; a calculation is searched by the name of its step."""
    if "steps" in answer:
        return next((line["value"] for line in answer["steps"] if line["name"] == row["figure"]), None)
    if row["figure"] == "tokens_per_s_per_gpu":
        step = answer["best"]["step"]
        return step["tokens_per_s"] / row["args"]["gpus"] if step else None
    value: Any = answer
    for name in row["figure"].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _step_band(result: dict[str, Any], row: dict[str, Any]) -> dict[str, float] | None:
    """The band of a rate from that of the step time."""
    seconds = result["band"].get("best.step.total_s")
    if row["figure"] != "tokens_per_s_per_gpu" or seconds is None:
        return None
    step = result["answer"]["best"]["step"]
    tokens = step["tokens_per_s"] * step["total_s"] / row["args"]["gpus"]
    return {"p10": tokens / seconds["p90"], "p90": tokens / seconds["p10"]}


def table(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Counts of each verdict by group, with the share of published values inside the bands."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        for name in (row["group"], "all"):
            line = found.setdefault(name, {"asked": 0, **dict.fromkeys(VERDICTS, 0), "banded": 0, "inside": 0})
            line["asked"] += 1
            line[row["verdict"]] += 1
            line["banded"] += "inside" in row
            line["inside"] += row.get("inside", False)
    return {name: line for name, line in found.items() if name != "all"} | {"all": found["all"]}


def errors(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Median error by group, and the share of published values inside the bands."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "answer" in row:
            groups.setdefault(row["group"], []).append(row)
    return {
        name: f"{len(found)} rows, MdAPE "
        f"{statistics.median(abs(row['answer'] / row['published'] - 1) for row in found):.1%}, inside "
        f"{sum(row.get('inside', False) for row in found)} of {sum('inside' in row for row in found)}"
        for name, found in groups.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch.loading import load_catalog

    load_catalog(Context().settings)
    document = json.loads(options.file.read_text("utf-8"))
    asked = ("verdict", "answer", "code", "inside")
    questions = [{k: v for k, v in row.items() if k not in asked} for row in document["rows"]]
    document["rows"] = [{**row, **ask(row)} for row in questions]
    document["table"] = table(document["rows"])
    for row in document["rows"]:
        if row["verdict"] != "within":
            print(
                f"{row['verdict']:9} {row['what'][:90]:90} {row['published']:.4g} {row.get('answer', row.get('code'))}"
            )
    for name, line in document["table"].items():
        print(f"{name:26}", line)
    for name, text in errors(document["rows"]).items():
        print(f"{name:26}", text)
    if options.write:
        head = {k: v for k, v in document.items() if k != "rows"}
        rows = ",\n  ".join(json.dumps(row) for row in document["rows"])
        options.file.write_text(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}\n', "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
