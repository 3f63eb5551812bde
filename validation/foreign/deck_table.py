"""The table of a deck: its rows, and what they add up to."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

REFUSED = ("incorrect", "invalid")
CLAIM = 1.1  # a published speedup that is worth a look
QUICK_S = 10.0  # of a comparison at `quick`, apart from compilation


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, and candidates whose verdict contradicts what is known of them."""
    outcomes = Counter(f"{row['auditor']}: {row.get('verdict') or row['refusal']['code']}" for row in rows)
    accused = [row["id"] for row in rows if row["auditor"] in ("honest", "clean") and row.get("verdict") in REFUSED]
    missed = [row["id"] for row in rows if row["auditor"] == "wrong" and row.get("verdict", "invalid") not in REFUSED]
    ratios = [row["ratio"] / row["fresh"] for row in rows if row.get("ratio") and row.get("fresh")]
    logs = sorted(map(math.log, ratios))
    timed = [row["seconds"] - row["phases"]["compile"] for row in rows if "compile" in row.get("phases", ())]
    return {
        "outcomes": dict(sorted(outcomes.items())),
        "contradictions": [*accused, *missed],
        "median_ratio_to_fresh": math.exp(logs[len(logs) // 2]) if logs else None,
        "seconds_measured": len(timed),
        "within_10_s_apart_from_compilation": sum(seconds <= QUICK_S for seconds in timed),
        "judged": sum("verdict" in row for row in rows),
        "of": len(rows),
        **published(rows),
        **beside_kernelbench(rows),
        "problems": problems(rows),
    }


def published(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of published speedups above a tenth: whose programs are refused, and which hold within a tenth."""
    claims = [row for row in rows if (row.get("published") or 0.0) > CLAIM and "verdict" in row]
    measured = [row for row in claims if row["verdict"] not in REFUSED and row.get("ratio")]
    facts = {
        "judged": len(claims),
        "refused": sum(row["verdict"] in REFUSED for row in claims),
        "within a tenth, or faster": sum(row["ratio"] >= 0.9 * row["published"] for row in measured),
        "slower than that": sum(row["ratio"] < 0.9 * row["published"] for row in measured),
        "of those no gain": sum(row["ratio"] < CLAIM and row["ratio"] < 0.9 * row["published"] for row in measured),
    }
    return {"published speedups above 1.1": facts} if claims else {}


def beside_kernelbench(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of KernelBench's own evaluation and of ours, and where they differ about correctness."""
    both = [row for row in rows if "kernelbench" in row and "verdict" in row]
    accepted = {row["id"]: bool(row["kernelbench"].get("correct")) for row in both}
    theirs, ours = ([row[key] for row in both] for key in ("kernelbench", "seconds"))
    facts = {
        "candidates": len(both),
        "median_s": statistics.median(each["seconds"] for each in theirs) if theirs else None,
        "our_median_s": statistics.median(ours) if ours else None,
        "correct there, refused here": [row["id"] for row in both if accepted[row["id"]] and row["verdict"] in REFUSED],
        "refused there only": [row["id"] for row in both if not accepted[row["id"]] and row["verdict"] not in REFUSED],
    }
    return {"beside_kernelbench": facts} if both else {}


def problems(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per group: problems, those adapted, and why the others were not."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = groups.setdefault(row["group"], {"problems": set(), "adapted": set(), "refused": {}})
        group["problems"].add(row["problem"])
        refusal = row.get("refusal") or {}
        if "verdict" in row or refusal["code"] in ("NEEDS", "CANDIDATE_NEEDS"):
            group["adapted"].add(row["problem"])
        else:
            group["refused"].setdefault(row["problem"], f"{refusal['code']}: {(refusal['message'] or '')[:200]}")
    return {
        name: {
            "problems": len(group["problems"]),
            "adapted": len(group["adapted"]),
            "refused": {key: text for key, text in group["refused"].items() if key not in group["adapted"]},
        }
        for name, group in groups.items()
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the table in one step, so that a kill leaves a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({"summary": summary(rows), "rows": rows}, indent=1) + "\n")
    temporary.replace(path)
