"""Calls that every front end answers with the same envelope, and how envelopes are compared."""

from __future__ import annotations

import json
import re
from typing import Any

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("aisp_demo_echo", {"count": 2}, ["demo", "echo", "2"]),
    ("aisp_demo_echo", {"count": 2, "names": ["a", "b"], "loud": True, "ratio": 0.5, "colour": "blue"},
     ["demo", "echo", "--count", "2", "--names", "a,b", "--loud", "--ratio", "0.5", "--colour", "blue"]),
    ("aisp_demo_echo", {"count": 2, "either": ["x"]}, ["demo", "echo", "2", "--either", "x"]),
    ("aisp_demo_repeat", {"count": 2}, ["aisp_demo_repeat", "2"]),
    ("aisp_demo_numbers", {}, ["demo", "numbers"]),
    ("aisp_demo_big", {"items": 200, "text": 500}, ["demo", "big", "--items", "200", "--text", "500"]),
    ("aisp_demo_big", {"items": 0}, ["demo", "big", "--items", "0"]),
    ("aisp_demo_judge", {"passed": False}, ["demo", "judge", "--no-passed"]),
    ("aisp_demo_refuse", {}, ["demo", "refuse"]),
    ("aisp_demo_boom", {}, ["demo", "boom"]),
    ("aisp_demo_echo", {}, ["demo", "echo"]),
    ("aisp_demo_echo", {"count": "x"}, ["demo", "echo", "x"]),
    ("aisp_demo_echo", {"count": 99}, ["demo", "echo", "99"]),
    ("aisp_demo_echo", {"cuont": 1}, ["demo", "echo", "--cuont", "1"]),
    ("aisp_demo_echo", {"count": 1, "mode": "loud"}, ["demo", "echo", "1", "--mode", "loud"]),
    ("aisp_demo_count", {"steps": 4, "dry_run": True}, ["demo", "count", "4", "--dry-run"]),
    ("aisp_demo_count", {"steps": 13}, ["demo", "count", "13"]),
    ("aisp_suggest_tools", {"query": "judge a demo"}, ["suggest", "tools", "judge a demo"]),
    ("aisp_suggest_tools", {"query": "zzzz"}, ["suggest", "tools", "zzzz"]),
    ("aisp_analyze_pareto", {}, ["bench", "pareto"]),
    ("aisp_analyze_scaling", {"n": [1.0, 2.0, 4.0], "throughput": [10.0, 19.0, 34.0]},
     ["bench", "scaling", "--n", "1", "2", "4", "--throughput", "10", "19", "34"]),
    ("aisp_analyze_memory_patterns", {"stride": 32}, ["profile", "memory-patterns", "--stride", "32"]),
    ("aisp_predict_scaling", {"params_b": 8.0, "layers": 32, "hidden": 4096, "gpus": 8, "gpu": "H100", "batch": 64},
     ["predict", "scaling", "--params-b", "8", "--layers", "32", "--hidden", "4096", "--gpus", "8", "--gpu", "H100",
      "--batch", "64"]),
]  # fmt: skip


def comparable(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope without times, incident numbers and job ids, which differ between calls."""
    text = json.dumps({name: part for name, part in envelope.items() if name != "meta"})
    text = re.sub(r"incident [0-9a-f]{8}", "incident N", text)
    data: dict[str, Any] = json.loads(re.sub(r"\bj_[\w-]{22}", "JOB", text))
    return data
