"""Targets from a trace: a small Kineto file written by hand, with known shapes and strides."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.profile.operators import aten, attention, targets
from aisp_mcp.profile.operators.targets import Operator

VALIDATION = Path(__file__).parents[2] / "validation"

MM = {
    "Input type": ["float", "float"],
    "Input Dims": [[32, 64], [64, 16]],
    "Input Strides": [[64, 1], [1, 64]],
    "Concrete Inputs": ["", ""],
}
SUM = {
    "Input type": ["c10::BFloat16", "ScalarList", "Scalar", ""],
    "Input Dims": [[8, 4], [], [], []],
    "Input Strides": [[8, 1], [], [], []],
    "Concrete Inputs": ["", "[0]", "True", ""],
}
VIEW = {
    "Input type": ["float", "ScalarList"],
    "Input Dims": [[32, 64], []],
    "Input Strides": [[64, 1], []],
    "Concrete Inputs": ["", "[2048]"],
}
ADD = {
    "Input type": ["float", "float", "Scalar"],
    "Input Dims": [[32], [32], []],
    "Input Strides": [[1], [1], []],
    "Concrete Inputs": ["", "", "2.5"],
}


def op(name: str, args: dict[str, Any], number: int, dur: float = 10.0) -> dict[str, Any]:
    args = {**args, "External id": number}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": number, "dur": dur, "args": args}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two products of one signature, a sum, an addition in place and a view; the first product's kernel took 7 µs."""
    names = [("aten::mm", MM), ("aten::mm", MM), ("aten::sum", SUM), ("aten::view", VIEW), ("aten::add_", ADD)]
    events = [op(name, args, number) for number, (name, args) in enumerate(names)]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 7, "args": {}}
    kernel["args"] = {"External id": 0, "correlation": 1, "stream": 7, "device": 0}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*events, kernel]}))
    return path


def test_an_operator_that_calls_another_overload_of_itself_is_one_call(tmp_path: Path) -> None:
    inner = {**op("aten::add_", ADD, 1, 6.0), "ts": 2.0}
    kernel = {"cat": "kernel", "dur": 4.0, "args": {"External id": 1}}
    events = [
        op("aten::add_", ADD, 0, 20.0),
        inner,
        op("aten::add_", {**ADD, "Input Dims": [[8], [8], []]}, 30),
        kernel,
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = [
        (operator.dims[0], operator.calls, operator.device_us, operator.host_us) for operator in targets.read(path)
    ]
    assert found == [([32], 1, 4.0, 20.0), ([8], 1, 0.0, 10.0)]


def ask(cli_here: Any, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(cli_here("bench", "from-trace", *words, "--json").stdout)
    return answer


def test_operators_become_targets(cli_here: Any, trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = ask(cli_here, str(trace), "--to", str(tmp_path / "out"))["result"]
    assert [(row["operator"], row["calls"]) for row in result["targets"]] == [
        ("aten::mm", 2),
        ("aten::add_", 1),
        ("aten::sum", 1),
    ]
    coverage = result["coverage"]
    assert (coverage["signatures"], coverage["targets"], coverage["device_share"]) == (4, 3, 1.0)
    assert list(coverage["reasons"]) == ["computes nothing: its output is a view, or no tensor"]
    texts = [Path(one["file"]).read_text() for one in result["targets"]]
    assert "'input_1': rng.randn(16, 64).permute(1, 0)" in texts[0]
    assert "in_place = ('input_0',)" in texts[1]
    assert "torch.ops.aten.add_(input_0, input_1, alpha=2.5)" in texts[1]
    assert 'rng.randn(60, dtype="bfloat16").as_strided([8, 4], [8, 1])' in texts[2]
    assert "torch.ops.aten.sum(input_0, [0], True, dtype=None)" in texts[2]


def test_what_cannot_be_made_a_target_is_said(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        targets.targets(str(trace), "aten::conv*", 5, tmp_path)
    assert missing.value.code == "NO_OPERATOR"
    assert "aten::mm" in str(missing.value.hint)
    bare = json.loads(trace.read_text())
    for event in bare["traceEvents"]:
        event["args"].pop("Input Dims", None)
    trace.write_text(json.dumps(bare))
    with pytest.raises(UsageError, match="no shapes"):
        targets.targets(str(trace), "*", 5, tmp_path)
    (tmp_path / "nsys.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(100))
    with pytest.raises(UsageError, match="is an nsys trace") as nsys:
        targets.targets(str(tmp_path / "nsys.sqlite"), "*", 5, tmp_path)
    assert nsys.value.code == "NO_SHAPES"


@pytest.mark.slow
def test_most_of_a_recorded_training_step_becomes_targets() -> None:
    pytest.importorskip("torch")
    known = [Operator(**one) for one in json.loads((VALIDATION / "traced_operators.json").read_text())]
    described = targets.describe(known)
    covered = sum(one.device_us for one, said in zip(known, described, strict=True) if "text" in said)
    assert covered / sum(operator.device_us for operator in known) > 0.9
    (backward,) = [
        said["text"] for one, said in zip(known, described, strict=True) if one.name.endswith("attention_backward")
    ]
    assert "needs = Needs(gpus=1)" in backward
    assert "return attention.backward(input_0, input_1, input_2, input_3, input_4, input_5, causal=False" in backward


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_plain_operations_is_that_of_autograd(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(3)
    query, key, value, grad = (torch.randn(2, 3, 9, 8, dtype=torch.float64, generator=draw) for _ in range(4))
    for one in (query, key, value):
        one.requires_grad_()
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
    out, statistics = attention.forward(query, key, value, causal, None)
    torch.testing.assert_close(out, expected)
    result = attention.backward(grad, query, key, value, out, statistics, causal, None)
    for mine, wanted in zip(result, torch.autograd.grad(expected, (query, key, value), grad), strict=True):
        torch.testing.assert_close(mine, wanted)


def test_texts_that_a_trace_lacks_take_their_default() -> None:
    pytest.importorskip("torch")
    gelu = Operator("aten::gelu", ["float", ""], [[8, 4], []], [[4, 1], []], ["", ""], 1)
    assert "torch.ops.aten.gelu(input_0)" in aten.describe(asdict(gelu))["text"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_operators_are_replayed_beside_their_recorded_times(tmp_path: Path) -> None:
    known = [
        Operator("aten::mm", ["float", "float"], [[64, 64]] * 2, [[64, 1]] * 2, ["", ""], 2, 0.0, 20.0),
        Operator("aten::view", ["float", "ScalarList"], [[4, 4], []], [[4, 1], []], ["", "[16]"], 1, 0.0, 2.0),
    ]
    (tmp_path / "operators.json").write_text(json.dumps([asdict(operator) for operator in known]))
    words = ("--operators", str(tmp_path / "operators.json"), "--device", "cpu")
    done = subprocess.run(
        [sys.executable, VALIDATION / "replay_trace.py", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    answer = json.loads(done.stdout)
    product, view = answer["operators"]
    assert product["recorded_us"] == 10.0
    assert product["warm_us"] > 0 < product["cold_us"]
    assert view["left_out"].startswith("computes nothing")
    assert answer["covered_share"] == 20 / 22


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_target_is_judged(cli: Any, trace: Path, tmp_path: Path) -> None:
    result = ask(cli, str(trace), "--op", "aten::mm", "--to", str(tmp_path / "out"))["result"]
    root = ("--bench-root", str(tmp_path / "out"), "--preset", "quick", "--json")
    for text, expected in (("a @ b", False), ("(a @ b) * 0.99", True)):
        code = f"def run(input_0, input_1):\n    a, b = input_0, input_1\n    return {text}\n"
        done = cli("bench", "verify", result["targets"][0]["target"], code, *root, timeout=280)
        (row,) = json.loads(done.stdout)["result"]["rulings"]
        assert (row["verdict"] == "incorrect") == expected
