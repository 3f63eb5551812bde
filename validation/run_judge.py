"""On a GPU machine: judge the six pairs, and hold the judge's medians against triton.testing.do_bench.

python validation/run_judge.py pairs|do_bench|aa [OUT.json] [--preset NAME] [--seconds N] [--logs FOLDER]
pairs: the benchmarks of this repository. do_bench: eleven operations against triton's own timer. aa: three operations
against themselves, as often as the seconds allow. One JSON object, with device, versions and date.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.judge import comparison as orchestrator
from aisp_mcp.judge.presets import PRESETS, Preset
from aisp_mcp.runs import measure
from aisp_mcp.suites import selection
from aisp_mcp.system import manifest
from aisp_mcp.validity import corpus

ROOT = Path(__file__).parents[1]

# name: (inputs, expression); 50 µs to 10 ms on an H200, then 5-50 µs
OPS = {
    "softmax_4096": ('{"a": rng.randn(4096, 4096)}', "torch.softmax(a, 1)"),
    "gelu_8192": ('{"a": rng.randn(8192, 8192)}', "torch.nn.functional.gelu(a)"),
    "layer_norm_8192": ('{"a": rng.randn(8192, 4096)}', "torch.nn.functional.layer_norm(a, (4096,))"),
    "row_sum_16384": ('{"a": rng.randn(16384, 8192)}', "a.sum(1)"),
    "transpose_8192": ('{"a": rng.randn(8192, 8192)}', "a.t().contiguous()"),
    "matmul_bf16_4096": (
        '{"a": rng.randn(4096, 4096, dtype="bfloat16"), "b": rng.randn(4096, 4096, dtype="bfloat16")}',
        "a @ b",
    ),
    "matmul_bf16_8192": (
        '{"a": rng.randn(8192, 8192, dtype="bfloat16"), "b": rng.randn(8192, 8192, dtype="bfloat16")}',
        "a @ b",
    ),
    "attention": (
        '{k: rng.randn(4, 16, 4096, 128, dtype="bfloat16") for k in "abc"}',
        "torch.nn.functional.scaled_dot_product_attention(a, b, c)",
    ),
    "add_1m": ('{"a": rng.randn(1 << 20), "b": rng.randn(1 << 20)}', "a + b"),
    "softmax_1024": ('{"a": rng.randn(1024, 1024)}', "torch.softmax(a, 1)"),
    "matmul_bf16_1024": (
        '{"a": rng.randn(1024, 1024, dtype="bfloat16"), "b": rng.randn(1024, 1024, dtype="bfloat16")}',
        "a @ b",
    ),
}


def write_op(folder: Path, name: str) -> tuple[Path, Path]:
    """Baseline and candidate files of one operation, both the same code."""
    inputs, expression = OPS[name]
    names = "abc" if "abc" in inputs else "ab" if '"b"' in inputs else "a"
    arguments = ", ".join(names)
    base, same = folder / f"baseline_{name}.py", folder / f"optimized_{name}.py"
    base.write_text(
        textwrap.dedent(f'''
        """{name}."""
        import torch
        from aisp_mcp.bench import Benchmark
        class Op(Benchmark):
            def inputs(self, rng):
                return {inputs}
            def run(self, {arguments}):
                return {expression}
        ''')
    )
    same.write_text(f'"""The same."""\nimport torch\ndef run({arguments}):\n    return {expression}\n')
    return base, same


DO_BENCH = """
import json, statistics, sys, time, torch
from triton.testing import do_bench
class R:
    def randn(self, *s, dtype="float32"): return torch.randn(*s, device="cuda", dtype=getattr(torch, dtype))
rng = R()
out = {}
for name, (inputs, expression) in json.load(sys.stdin).items():
    env = {"torch": torch, **eval(inputs, {"rng": rng})}
    code = compile(expression, name, "eval")
    # Bursts with pauses, as the judge measures: a power-limited kernel is slower when it runs without a pause.
    bursts = []
    for _ in range(12):
        time.sleep(0.15)
        found = do_bench(lambda: eval(code, env), warmup=2, rep=12, quantiles=[0.5])
        bursts.append(found[0] if isinstance(found, list) else found)
    out[name] = statistics.median(bursts)
    del env
print(json.dumps(out))
"""


def do_bench(names: list[str]) -> dict[str, float]:
    """Milliseconds by triton's own timer, in a process of its own."""
    chosen = json.dumps({name: OPS[name] for name in names})
    done = subprocess.run([sys.executable, "-c", DO_BENCH], input=chosen, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def judged(
    pair: orchestrator.Pair, preset: Preset, logs: Path | None = None, turn: Path | None = None
) -> dict[str, Any]:
    """One comparison as data; trouble as text. logs: where its raw rounds are kept, if anywhere. turn: of in_turn()."""
    folder = logs or Path(tempfile.mkdtemp())
    options = orchestrator.Options(preset, "default", "cuda", folder, os.environ.get("AISP_ISOLATION", "auto"))
    try:
        with corpus.in_turn(turn) as report:
            result = orchestrator.compare(pair, options, report)
    except Exception as error:
        traceback.print_exc()
        return {"target": pair.label, "error": f"{type(error).__name__}: {error}"}
    return {**result.model_dump(mode="json"), "log_path": None}


def pairs(preset: Preset, names: list[str], logs: Path | None) -> Iterator[dict[str, Any]]:
    pairs_found, _ = selection.pairs(ROOT / "benchmarks", names or ["ch01", "ch07", "ch09", "ch13", "ch15", "ch17"])
    for pair in pairs_found:
        row = judged(pair, preset, logs)
        show(row)
        yield row


AA_OPS = ("softmax_4096", "matmul_bf16_4096", "layer_norm_8192")


def against_itself(preset: Preset, seconds: float, turn: Path | None) -> Iterator[dict[str, Any]]:
    """Identical programs, again and again: how often is one called faster or slower?"""
    folder, begin = Path(tempfile.mkdtemp()), time.monotonic()
    for name in itertools.cycle(AA_OPS):
        if time.monotonic() - begin > seconds:
            return
        base, same = write_op(folder, name)
        comparison = judged(orchestrator.Pair(f"op:{name}", base, "", same), preset, turn=turn)
        show(comparison)
        keep = ("target", "verdict", "ratio", "interval", "margin", "noise_floor", "clocks", "seconds", "error")
        row = {key: comparison.get(key) for key in keep}
        yield row | {"flags": [flag["code"] for flag in comparison.get("flags", [])]}


def against_do_bench(names: list[str]) -> Iterator[dict[str, Any]]:
    """The judge's median, bracketed by do_bench before and after it, because power and clocks move."""
    folder = Path(tempfile.mkdtemp())
    for name in names or OPS:
        base, same = write_op(folder, name)
        before = do_bench([name])[name]
        row = judged(orchestrator.Pair(f"op:{name}", base, "", same), Preset("two", 2, 0.006))
        after = do_bench([name])[name]
        ours = (
            [row[program]["p50_s"] * 1e3 for program in ("baseline", "optimized")]
            if row.get("baseline")
            else [float("nan")]
        )
        theirs = statistics.fmean([before, after])
        row |= {"do_bench_ms": [before, after], "ours_ms": ours, "difference": statistics.fmean(ours) / theirs - 1}
        show(row)
        print(f"    do_bench {before:.4f} {after:.4f} ms, ours {ours}, difference {row['difference']:+.2%}", flush=True)
        yield row


def show(row: dict[str, Any]) -> None:
    clocks = row.get("clocks") or {}
    codes = [flag["code"] for flag in row.get("flags", [])]
    text = row.get("sentence") or row.get("error") or str(row)[:300]
    extra = f"parent {clocks.get('ratio_parent', 0):.4f} worker {clocks.get('ratio_worker', 0):.4f}" if clocks else ""
    times = [f"{(row.get(s) or {}).get('time_s', 0) * 1e6:.1f}us" for s in ("baseline", "optimized")]
    print(
        row["target"], row.get("candidate", ""), text, extra, times, codes, f"{row.get('seconds', 0):.1f}s", flush=True
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pairs", "do_bench", "aa"))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="default")
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--seconds", type=float, default=300.0, help="aa: start no comparison after that")
    parser.add_argument("--turn", type=Path, help="aa: a file; who holds it measures, while others with it prepare")
    parser.add_argument("--ops", nargs="*", default=[], choices=sorted(OPS), help="do_bench: these instead of all")
    parser.add_argument("--targets", nargs="*", default=[], help="pairs: chapters or targets instead of all")
    parser.add_argument("--logs", type=Path, help="pairs: keep the raw rounds in this folder")
    return parser.parse_args()


def main() -> None:
    """Run one of the three; what came of it is on disk after each row."""
    options, begin = arguments(), time.time()
    preset = measure.preset(options.preset, options.replicates)
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    measured = {
        "do_bench": lambda: against_do_bench(options.ops),
        "aa": lambda: against_itself(preset, options.seconds, options.turn),
        "pairs": lambda: pairs(preset, options.targets, options.logs),
    }[options.what]
    data: dict[str, Any] = {"what": options.what, "environment": manifest.manifest(), "rows": []}
    for row in measured():
        data["rows"].append(row)
        data["seconds"] = time.time() - begin
        if options.out:
            options.out.write_text(json.dumps(data, indent=1, default=str))


if __name__ == "__main__":
    main()
