"""The tools as a user calls them: over stored runs, and where nothing is stored."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from analyze_runs import GPU, log_of, pair, run_of

from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context

EMPTY = {
    "aisp_analyze_metrics": ({}, "NOTHING_STORED"),
    "aisp_analyze_pareto": ({}, "NOTHING_STORED"),
    "aisp_analyze_whatif": ({"vram_gb": 24, "latency_ms": 100}, "NOTHING_STORED"),
    "aisp_analyze_stacking": ({}, "NOTHING_STORED"),
    "aisp_analyze_scaling": ({}, "NOTHING_STORED"),
    "aisp_analyze_energy": ({}, "NO_ENERGY"),
    "aisp_analyze_bottlenecks": ({}, "NOTHING_STORED"),
}


def call(ctx: Context, tool: str, **args: Any) -> dict[str, Any]:
    answer = dispatch.execute(tool, args, ctx)
    assert answer.error is None, answer.error
    result: dict[str, Any] = answer.result
    return result


@pytest.fixture
def stored(ctx: Context, tmp_path: Path) -> Context:
    """Two runs on one GPU, the first of three variants, the second at a quarter of the size."""
    work = (8e9, 4e9)
    big, small = log_of(tmp_path, "big", [1000, 64]), log_of(tmp_path, "small", [250, 64])
    ctx.store.save_run(run_of(pair("x", 2.0, work=work, base_s=4e-3, log=small), run_id="r_small", gpu=GPU), None)
    variants = [pair(name, ratio, memory=(200, 100), work=work, base_s=16e-3, log=big)
                for name, ratio in (("x", 2.0), ("y", 3.0), ("x_y", 6.0))]  # fmt: skip
    ctx.store.save_run(run_of(*variants, run_id="r_big", gpu=GPU), None)
    for kind, value in (("gemm_fp32", 4e12), ("bandwidth_copy", 2e12), ("bandwidth_read", 1e12)):
        ctx.store.put_measurement(kind, "GPU-1", value, "x", {})
    return ctx


@pytest.mark.parametrize("tool", EMPTY)
def test_an_empty_store_says_which_call_fills_it(ctx: Context, tool: str) -> None:
    args, code = EMPTY[tool]
    answer = dispatch.execute(tool, args, ctx)
    assert answer.error is not None
    assert answer.error.code == code
    assert answer.error.next_steps
    for step in answer.error.next_steps:
        dispatch.validate(registry.get(step.tool), step.args)


def test_metrics_hold_the_share_of_the_measured_roof(stored: Context) -> None:
    result = call(stored, "aisp_analyze_metrics", run="r_big")
    assert [table["name"] for table in result["pairs"]] == ["ch01:a_x_y", "ch01:a_y", "ch01:a_x"]
    rows = {row["metric"]: row for row in result["pairs"][0]["metrics"]}
    # 4e9 bytes in 16 ms of 2e12 bytes/s, and 8e9 FLOP of 4e12 FLOP/s: both 12.5 %
    assert rows["of_ceiling"]["baseline"] == pytest.approx(0.125)
    assert rows["of_ceiling"]["candidate"] == pytest.approx(0.75)
    assert rows["memory_bytes"]["percent"] == pytest.approx(100)


def test_combinations_and_frontier_of_a_run(stored: Context) -> None:
    [stack] = call(stored, "aisp_analyze_stacking")["stacks"]
    assert (stack["kind"], stack["combine"], stack["interaction"]) == ("independent", True, 1.0)
    [front] = call(stored, "aisp_analyze_pareto", target="ch01:a")["fronts"]
    assert [point["name"] for point in front["points"] if point["frontier"]] == ["ch01:a_x_y"]


def test_functions_of_one_name_are_not_compared_with_each_other(ctx: Context, tmp_path: Path) -> None:
    for number, (digest, size) in enumerate((("aaaaaa", 1000), ("bbbbbb", 250))):
        own = pair("x", 2.0, base_s=4e-3, log=log_of(tmp_path, digest, [size, 64]))
        own = own.model_copy(update={"disclosed": {**own.disclosed, "identity": f"slow:f@{digest}"}})
        ctx.store.save_run(run_of(own, run_id=f"r_{number}", gpu=GPU), None)
    fronts = call(ctx, "aisp_analyze_pareto")["fronts"]
    assert {front["target"] for front in fronts} == {"slow:f@aaaaaa", "slow:f@bbbbbb"}
    assert len(call(ctx, "aisp_analyze_pareto", target="slow:f")["fronts"]) == 2
    answer = dispatch.execute("aisp_analyze_scaling", {}, ctx)
    assert answer.error is not None
    assert answer.error.code == "NO_SWEEP", "two functions are not two sizes of one"


def test_limits_and_a_call_without_any(stored: Context) -> None:
    result = call(stored, "aisp_analyze_whatif", latency_ms=4)
    assert [row["name"] for row in result["meets"]] == ["ch01:a_x_y"]
    assert result["nearest_misses"][0]["name"] == "ch01:a_y"
    answer = dispatch.execute("aisp_analyze_whatif", {}, stored)
    assert answer.error is not None
    assert answer.error.code == "NO_LIMIT"


def test_time_over_sizes_of_stored_runs(stored: Context) -> None:
    answer = {row["label"]: row for row in call(stored, "aisp_analyze_scaling")["scalings"]}
    assert set(answer) == {"ch01:a baseline on NVIDIA H200", "ch01:a_x on NVIDIA H200"}
    assert answer["ch01:a_x on NVIDIA H200"]["sentence"].endswith("through two sizes; a third would test it")
    fit = answer["ch01:a_x on NVIDIA H200"]["fits"][0]
    assert fit["parameters"]["exponent"] == pytest.approx(1.0)


def test_points_that_are_given(ctx: Context) -> None:
    [found] = call(ctx, "aisp_analyze_scaling", n=[1, 2, 4], time_s=[8.0, 4.4, 2.6])["scalings"]
    assert found["best"] == "amdahl"
    assert found["fits"][0]["parameters"]["serial_fraction"] == pytest.approx(0.1)
    for bad in ({"n": [1, 2], "throughput": [1.0]}, {"n": [1, 1], "throughput": [1.0, 2.0]}, {"n": [1, 2]}):
        answer = dispatch.execute("aisp_analyze_scaling", bad, ctx)
        assert answer.error is not None
        assert answer.error.code == "BAD_POINTS"


def test_a_run_is_bound_by_what_its_ceilings_say(stored: Context) -> None:
    answer = {row["subject"]: row["bound"] for row in call(stored, "aisp_analyze_bottlenecks", run="r_big")["found"]}
    assert answer["ch01:a baseline"] == "latency"
    assert answer["ch01:a_x_y"] == "balanced"


def test_energy_readings_are_ranked_and_join_the_metrics(stored: Context) -> None:
    from aisp_mcp.runs.energy.figures import Window, reading

    for name, joules in (("ch01:a baseline", 400.0), ("ch01:a_x", 200.0), ("ch01:a_x", 150.0)):
        row = reading(name, "ch01:a", "NVIDIA H200", [Window(calls=100, seconds=1.0, energy_j=joules)], 100.0)
        body = row.model_dump(mode="json", exclude={"measured_at"})
        stored.store.put_measurement(f"energy:{name}", "GPU-1", row.per_call_j.value, "J", body)
    answer = call(stored, "aisp_analyze_energy")["programs"]
    assert [(row["name"], row["per_call_j"]["value"]) for row in answer] == [
        ("ch01:a_x", 0.5),
        ("ch01:a baseline", 3.0),
    ]
    tables = {table["name"]: table for table in call(stored, "aisp_analyze_metrics", run="r_big")["pairs"]}
    rows = {row["metric"]: row for row in tables["ch01:a_x"]["metrics"]}
    assert rows["energy_j"]["improvement"] == pytest.approx(6)


def test_energy_needs_a_gpu_and_says_so(ctx: Context) -> None:
    from aisp_mcp.machine.probes import probe_runner

    if probe_runner.gpus()[0]:
        pytest.skip("a GPU is here")
    answer = dispatch.execute("aisp_measure_energy", {"target": "ch07:row_sum"}, ctx)
    assert answer.error is not None
    assert answer.error.code in ("NO_GPU", "NO_DRIVER")


def test_somebody_elses_runs_are_not_analysed(stored: Context) -> None:
    answer = dispatch.execute("aisp_analyze_metrics", {}, stored.under("alice"))
    assert answer.error is not None
    assert answer.error.code == "NOTHING_STORED"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("aisp_analyze_metrics", {}),
        ("aisp_analyze_pareto", {}),
        ("aisp_analyze_whatif", {"vram_gb": 24}),
        ("aisp_analyze_scaling", {}),
        ("aisp_predict_scaling", {"params_b": 8, "layers": 32, "hidden": 4096, "gpus": 8, "gpu": "H200", "batch": 64}),
    ],
)  # fmt: skip
def test_answers_are_short(stored: Context, tool: str, args: dict[str, Any]) -> None:
    text = json.dumps(call(stored, tool, **args))
    assert len(text) <= 6000  # about 1,500 tokens


def test_twenty_runs_take_less_than_a_second(stored: Context) -> None:
    """A bound that only a change of order would break; the figure itself stands in docs/performance.md."""
    for number in range(20):
        stored.store.save_run(run_of(pair("x", 2.0), run_id=f"r_{number}", gpu=GPU), None)
    call(stored, "aisp_analyze_pareto")
    began = time.process_time()
    call(stored, "aisp_analyze_pareto")
    assert time.process_time() - began < 1.0
