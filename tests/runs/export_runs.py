"""Records to export, and a text that attacks whatever shows it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from aisp_mcp.judge.records.measurement import Clocks, Figures, Interval, Memory, Verification
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.store.records.run import Run

HOSTILE = (
    '=HYPERLINK("http://evil.example/x")\'</title></style><script>alert(1)</script><img src=x onerror=alert(2)>'
    "{{7*7}}|@all`\u202e\x1b[31m\nnext"
)


def side(time_s: float) -> Figures:
    return Figures(
        processes=5, rounds=20, calls=400, time_s=time_s, p50_s=time_s, p95_s=1.1 * time_s, p99_s=1.2 * time_s,
        parent_time_s=1.01 * time_s, flops_per_s=1e9 / time_s, bytes_per_s=None,
        memory=Memory(host_peak_rss=300 << 20), prepare_s=1.5,
    )  # fmt: skip


def comparison(
    target: str, ratio: float | None, verdict: Verdict, text: str = "plain words", **more: object
) -> Comparison:
    measured = {} if ratio is None else {
        "ratio": ratio, "interval": Interval(low=0.98 * ratio, high=1.02 * ratio), "margin": 0.02, "noise_floor": 0.01,
        "p_value": 0.001, "baseline": side(1e-3), "optimized": side(1e-3 / ratio),
        "clocks": Clocks(used="worker", ratio_parent=ratio, ratio_worker=ratio, disagreement=0.001, delta=0.05),
        "verification": Verification(calls=400, checked=100, undetected_share=0.06, max_error_ratio=1.5,
                                     allowed_error_ratio=16.0, oracle="float64"),
    }  # fmt: skip
    fields = {"candidate": "", "isolation": "L1", "replicates": 5, "sentence": f"{verdict.value}: {text}", **measured}
    return Comparison.model_validate({"target": target, "verdict": verdict, **fields, **more})


def run_of(*comparisons: Comparison, run_id: str = "r_test", **more: object) -> Run:
    fields = {"created_at": 1.7e9, "preset": "default", "profile": "portable", "environment": {"host": {"cpu": "x"}}}
    return Run.model_validate({"id": run_id, **fields, "comparisons": list(comparisons), **more})


def write_log(folder: Path, name: str = "pair.rounds.jsonl", rounds: int = 3) -> tuple[str, str]:
    """A raw log with two calls per round; returns its path and the head of its chain."""
    lines, head = [], "0" * 64
    records = [{"kind": "open"}] + [
        {
            "kind": "round",
            "replicate": 0,
            "turn": n,
            "side": n % 3,
            "count": 2,
            "elapsed_s": 0.1,
            "durations_ns": [n, n + 1],
        }
        for n in range(rounds)
    ]
    for record in records:
        kind, rest = record["kind"], {key: value for key, value in record.items() if key != "kind"}
        lines.append(json.dumps({"kind": kind, "prev": head, **rest}, separators=(",", ":")))
        head = hashlib.sha256(lines[-1].encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name), head
