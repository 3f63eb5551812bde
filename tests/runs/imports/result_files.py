"""Small files in the formats of other tools, with what a reader must find in them."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any, NamedTuple

TIMES = [0.50, 0.52, 0.49, 0.51, 0.53, 0.48, 0.50, 0.52]


class Expected(NamedTuple):
    """text: the file. value and samples: of the first figure with that metric."""

    text: str
    format: str
    metric: str
    value: float
    samples: int


def hyperfine(times: list[float]) -> str:
    row = {"command": "sort a", "mean": sum(times) / len(times), "stddev": 0.02, "user": 0.1, "system": 0.1,
           "min": min(times), "max": max(times), "times": times, "exit_codes": [0] * len(times)}  # fmt: skip
    return json.dumps({"results": [row]})


def vllm(ttfts: list[float], itl: float = 0.02, **more: Any) -> str:
    """A detailed result: five tokens a request."""
    document = {
        "date": "20260213-154353", "model_id": "org/model", "num_prompts": len(ttfts), "completed": len(ttfts),
        "request_rate": "inf", "max_concurrency": 4, "duration": 10.0, "request_throughput": 0.8,
        "output_throughput": 4.0, "mean_ttft_ms": 1000 * sum(ttfts) / len(ttfts), "p99_ttft_ms": 1000 * max(ttfts),
        "ttfts": ttfts, "itls": [[itl] * 4 for _ in ttfts], "output_lens": [5] * len(ttfts), **more,
    }  # fmt: skip
    return json.dumps(document)


def nvbench(folder: Path) -> str:
    """With the samples next to it that --jsonbin writes. The last summary names a file outside: it must stay closed."""
    (folder / "nv-bin").mkdir()
    (folder / "nv-bin" / "0.bin").write_bytes(array("f", [0.001, 0.002, 0.003]).tobytes())
    (folder.parent / "outside.bin").write_bytes(array("f", [1.0]).tobytes())

    def state(name: str) -> dict[str, Any]:
        values = {
            "nv/cold/sample_size": "3",
            "nv/cold/time/gpu/mean": "0.002",
            "nv/cold/time/gpu/stdev/relative": "0.4",
        }
        rows = [{"tag": tag, "data": [{"name": "value", "value": text}]} for tag, text in values.items()]
        binary = [{"name": "filename", "value": name}, {"name": "size", "value": "3"}]
        rows.append({"tag": "nv/json/bin:nv/cold/sample_times", "data": binary})
        return {
            "device": 0,
            "axis_values": [{"name": "N", "input_string": name}],
            "summaries": rows,
            "is_skipped": False,
        }

    states = [state("nv-bin/0.bin"), state("../outside.bin"), {"is_skipped": True}]
    return json.dumps({"devices": [{"id": 0, "name": "GPU A"}], "benchmarks": [{"name": "copy", "states": states}]})


def _pytest_benchmark() -> str:
    stats = {"median": 0.5, "mean": 0.51, "stddev": 0.02, "rounds": 8, "iterations": 10, "data": TIMES}
    rows = [{"name": "test_a", "fullname": "t.py::test_a", "stats": stats}, {"name": "test_b", "stats": {}}]
    return json.dumps({"machine_info": {"node": "h", "cpu": {"brand_raw": "CPU X"}}, "benchmarks": rows,
                       "commit_info": {"id": "abc"}, "datetime": "2026-01-02T03:04:05"})  # fmt: skip


def _asv() -> str:
    columns = ["result", "params", "version", "started_at", "samples"]
    rows = {
        "suite.time_x": [[0.5, None], [["'a'", "'b'"]], "v", 1_600_000_000_000, [TIMES, None]],
        "suite.track_y": [[7.0], [], "v", 1_600_000_000_000],
    }
    return json.dumps(
        {"commit_hash": "abc", "date": 1, "params": {"machine": "m"}, "result_columns": columns, "results": rows}
    )


def _google() -> str:
    rows: list[dict[str, Any]] = [
        {
            "name": "BM/8",
            "run_name": "BM/8",
            "run_type": "iteration",
            "real_time": 500 + i,
            "cpu_time": 400,
            "time_unit": "us",
        }
        for i in range(6)
    ]
    rows.append({"name": "BM/8_mean", "run_name": "BM/8", "run_type": "aggregate", "aggregate_name": "mean",
                 "real_time": 502.5, "cpu_time": 400, "time_unit": "us"})  # fmt: skip
    rows.append({"name": "bad", "run_type": "iteration", "error_occurred": True, "error_message": "x"})
    return json.dumps({"context": {"date": "2026-01-02 03:04:05", "num_cpus": 4}, "benchmarks": rows})


def _llama() -> str:
    row = {"model_type": "llama 7B", "n_prompt": 512, "n_gen": 0, "n_depth": 64, "avg_ts": 100.0, "stddev_ts": 1.0,
           "samples_ts": [99.0, 100.0, 101.0], "test_time": "2026-01-02T03:04:05Z", "cpu_info": "C"}  # fmt: skip
    return "\n".join(json.dumps({**row, "n_gen": count}) for count in (0, 128))


def _guidellm() -> str:
    request = {"time_to_first_token_ms": 50.0, "request_latency": 0.2, "output_tokens": 16, "request_start_time": 5.0}
    benchmark = {
        "config": {"backend": {"model": "m"}, "strategy": {"type_": "concurrent", "streams": 2}}, "start_time": 5.0,
        "metrics": {"time_to_first_token_ms": {}, "request_totals": {"errored": 1, "incomplete": 0},
                    "requests_per_second": {"successful": {"mean": 9.0}}},
        "requests": {"successful": [request] * 3},
    }  # fmt: skip
    return json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [benchmark]})


def _aiperf() -> str:
    metrics = {"time_to_first_token": {"value": 50, "unit": "ms"}, "request_latency": {"value": 0.2, "unit": "s"},
               "output_sequence_length": {"value": 16, "unit": "tokens"}}  # fmt: skip
    rows = [{"metadata": {"request_start_ns": 5e9, "benchmark_phase": phase}, "metrics": metrics}
            for phase in ("warmup", "profiling", "profiling")]  # fmt: skip
    return "\n".join(json.dumps(row) for row in rows)


def _pyperf() -> str:
    runs = [{"metadata": {"calibrate_loops": 4}, "warmups": [[1, 9.0]]}]
    runs += [{"warmups": [[4, 8.0]], "values": [at, at + 0.02]} for at in (0.48, 0.5, 0.52)]
    return json.dumps({"version": "1.0", "metadata": {"loops": 4, "hostname": "h"},
                       "benchmarks": [{"metadata": {"name": "sort", "unit": "second"}, "runs": runs}]})  # fmt: skip


def _mllog(key: str, at_ms: float, value: Any = None, **about: Any) -> str:
    return f"0: :::MLLOG {json.dumps({'time_ms': at_ms, 'key': key, 'value': value, 'metadata': about})}"


def _training() -> str:
    lines = [_mllog("submission_benchmark", 0, "llama2"), _mllog("run_start", 10_000)]
    lines += [_mllog("tracked_stats", 11_000 + i, {"throughput": 5.0 + i}) for i in range(3)]
    return "\n".join(["noise", *lines, _mllog("run_stop", 70_000, status="aborted")])


_SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : SingleStream
Mode     : PerformanceOnly
90th percentile latency (ns) : 8434934462
Result is : INVALID
"""

FILES: dict[str, Expected] = {
    "hyperfine": Expected(hyperfine(TIMES), "hyperfine", "time", 0.50625, 8),
    "hyperfine-csv": Expected(
        "command,mean,stddev,median,user,system,min,max\nsort a,0.5,0.1,0.5,0,0,0,1\n", "hyperfine", "time", 0.5, 0
    ),
    "pytest-benchmark": Expected(_pytest_benchmark(), "pytest-benchmark", "time", 0.5, 8),
    "pyperf": Expected(_pyperf(), "pyperf", "time", 0.51, 6),
    "asv": Expected(_asv(), "asv", "time", 0.5, 8),
    "google-benchmark": Expected(_google(), "google-benchmark", "time", 502.5e-6, 6),
    "vllm": Expected(vllm([0.1, 0.2, 0.3]), "bench-serving", "tpot", 0.02, 3),
    "inferencemax": Expected(
        json.dumps({"hw": "h200", "conc": 4, "median_ttft": 1.5, "tput_per_gpu": 900.0}), "bench-serving",
        "median ttft", 1.5, 0,
    ),
    "guidellm": Expected(_guidellm(), "guidellm", "tpot", 0.01, 3),
    "aiperf": Expected(_aiperf(), "aiperf", "tpot", 0.01, 2),
    "llama-bench": Expected(_llama(), "llama-bench", "pp512 @ d64", 100.0, 3),
    "llama-bench-below-a-log": Expected(
        f"ggml: 1 device\n[init] ready\n{json.dumps([json.loads(_llama().splitlines()[0])])}\nbuild: 7\n",
        "llama-bench", "pp512 @ d64", 100.0, 3,
    ),
    "mlperf-training": Expected(_training(), "mlperf", "time to train", 60.0, 0),
    "mlperf-inference": Expected(_SUMMARY, "mlperf", "p90 latency", 8.434934462, 0),
}  # fmt: skip
