"""A pair over a workload: the rule, the readers, and the whole way through the tool."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.judge.functions import sources
from aisp_mcp.judge.functions.sources import Parameters
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.records.measurement import Clocks, Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict import workload as rule
from aisp_mcp.runs.workload import measuring, reading
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure


def regime(
    label: str,
    launches: float,
    seconds: float,
    ratio: float | None,
    half: float = 0.02,
    word: str = "",
    replicates: int = 3,
    worker: float | None = None,
) -> rule.Measured:
    """A regime with a ratio whose interval has that half-width. worker: the ratio by the worker's clock, of which the
    parent's proves only this one.
    """
    interval = ratio and Interval(low=ratio * math.exp(-half), high=ratio * math.exp(half), level=0.95)
    shown = (ratio or 1) > math.exp(half), (ratio or 1) < math.exp(-half)
    known = Verdict.FASTER if shown[0] else Verdict.SLOWER if shown[1] else Verdict.INCONCLUSIVE
    compared = Comparison(target=label, candidate="", verdict=Verdict(word) if word else known, sentence="x: why",
                          ratio=ratio, interval=interval or None, noise_floor=half / 2, isolation="L2",
                          replicates=replicates)  # fmt: skip
    if worker:
        bound = Clocks(used="lower_bound", ratio_parent=worker, ratio_worker=worker, delta=0.1)
        compared = compared.model_copy(update={"clocks": bound})
    return rule.Measured(label, launches, seconds, compared)


def test_a_ratio_is_weighted_by_time_and_names_the_worst_regime() -> None:
    judged = rule.judge("w", [regime("M=8192", 6, 3.0, 2.0), regime("M=64", 94, 1.0, 1.0)], 0.18)
    assert judged.ratio == pytest.approx(4 / (3 / 2 + 1))
    assert (judged.verdict, judged.passed, judged.worst) == ("faster", True, "M=64")
    assert judged.step_ratio == pytest.approx(1 / (0.82 + 0.18 / 1.6))
    assert "lowest at M=64: 1.000x, 25 % of the time" in judged.sentence
    assert "18 % of the step: 1.072x of all of it at most" in judged.sentence
    assert [each.label for each in judged.regimes] == ["M=8192", "M=64"]


@pytest.mark.parametrize(
    ("large", "small", "word"),
    [
        ((6, 8.0, 1.5), (94, 1.0, 0.9), "trade-off"),  # 11 % of the time, nearly all launches
        ((6, 80.0, 1.5), (94, 1.0, 0.9), "trade-off"),  # 1 % of the time, but most launches
        ((94, 80.0, 1.5), (6, 1.0, 0.9), "faster"),
        ((6, 1.0, 1.5), (94, 8.0, 0.9), "slower"),
        ((6, 8.0, 1.5), (94, 1.0, 1.0), "faster"),
    ],
)
def test_no_workload_is_faster_in_which_a_regime_that_matters_is_slower(
    large: tuple[float, float, float], small: tuple[float, float, float], word: str
) -> None:
    judged = rule.judge("w", [regime("M=8192", *large), regime("M=64", *small)], None)
    assert judged.verdict == word
    if word == "trade-off":
        assert judged.passed is False
        assert "slower at M=64: 0.90x" in judged.sentence or "slower at M=64: 0.900x" in judged.sentence


def test_a_slower_regime_may_be_accepted_and_is_still_named() -> None:
    pair = [regime("M=8192", 6, 8.0, 1.5), regime("M=64", 94, 1.0, 0.9)]
    judged = rule.judge("w", pair, None, allow_slower=True)
    assert (judged.verdict, judged.passed) == ("faster", True)
    assert "slower at M=64: 0.900x" in judged.sentence


def test_bounds_of_gains_prove_no_loss_of_a_workload() -> None:
    """On a busy machine, the parent's clock proved 0.3x of candidates that were ten times as fast."""
    bound = regime("M=64", 9, 9.0, 0.3, word="inconclusive", worker=10.0)
    judged = rule.judge("w", [bound, regime("M=8192", 1, 1.0, 1.0)], None)
    assert (judged.verdict, judged.passed) == ("inconclusive", None)
    assert judged.sentence.startswith("inconclusive: at least 0.32x over this workload")
    assert "no gain is proven" in judged.sentence
    lost = rule.judge("w", [bound, regime("M=8192", 9, 9.0, 0.5)], None)
    assert lost.verdict == "slower"
    same = [regime("M=64", 9, 9.0, 1.0, half=0.001, worker=1.5), regime("M=8192", 1, 1.0, 1.0, half=0.001)]
    assert rule.judge("w", same, None).verdict == "inconclusive"


@pytest.mark.parametrize(("small", "word"), [(0.8, "inconclusive"), (0.995, "faster")])
def test_one_process_pair_calls_nothing_faster_that_seems_slower_somewhere(small: float, word: str) -> None:
    pair = [
        regime("M=8192", 6, 9.0, 9.0, word="faster", replicates=1),
        regime("M=64", 94, 0.5, small, word="inconclusive", replicates=1),
    ]
    judged = rule.judge("w", pair, None)
    assert judged.verdict == word
    assert ("cannot show that it is not slower at M=64" in judged.sentence) == (word == "inconclusive")
    assert rule.judge("w", pair, None, allow_slower=True).verdict == "faster"


def test_the_regime_that_loses_most_is_measured_again() -> None:
    noise = [regime(f"M={at}", 1, 10.0, 0.99, half=0.1) for at in range(9)]
    seemed = rule.judge("w", [*noise, regime("M=64", 1, 6.0, 0.8, half=0.3), regime("M=1", 1, 1.0, 0.1, half=9)], None)
    assert measuring.seems_slower(seemed) == "M=64"
    assert measuring.seems_slower(rule.judge("w", [regime("a", 1, 1.0, 1.1), regime("b", 1, 1.0, 0.5)], None)) is None


def test_a_wrong_answer_in_one_regime_and_a_missing_ratio_decide() -> None:
    good = regime("a", 1, 1.0, 2.0)
    wrong = rule.judge("w", [good, regime("b", 1, 0.001, 3.0, word="incorrect")], None)
    assert (wrong.verdict, wrong.passed, wrong.ratio) == ("incorrect", False, None)
    assert wrong.sentence == "incorrect: at b, why"
    assert rule.judge("w", [good, regime("b", 1, 1.0, None, word="inconclusive")], None).passed is None


def test_many_noisy_regimes_give_a_narrow_interval_of_the_whole() -> None:
    one = rule.judge("w", [regime("a", 1, 1.0, 1.1, half=0.2), regime("b", 1, 1e-9, 1.1)], None)
    many = rule.judge("w", [regime(f"{at}", 1, 1.0, 1.1, half=0.2) for at in range(12)], None)
    assert one.interval
    assert many.interval
    assert math.log(many.interval.high / many.interval.low) < math.log(one.interval.high / one.interval.low) / 5


def test_a_dozen_regimes_have_fewer_rounds_each() -> None:
    preset = PRESETS["default"]
    rounds = [n * (p := measuring.divided(preset, n)).palindromes * p.replicates for n in (1, 2, 6, 12)]
    assert rounds[0] == preset.palindromes * preset.replicates
    assert max(rounds) <= 2 * rounds[0]


# --- readers

FUNCTION = Parameters(("x", "w"), required=frozenset({"x", "w"}))


def read(path: Path, text: str, named: tuple[str, ...] = ("M", "K")) -> reading.Read:
    path.write_text(text)
    return reading.read(str(path), named, FUNCTION, "mm")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "M,weight\n64,940\n8192,60\n"),
        ("t.csv", "# decode first\nshape, launches\nM=64, 940\nM=8192, 60\n"),
        ("t.csv", "shape,count\n64,900\n64,40\n8192,60\n"),
        ("t.tsv", "M\tcalls\n64\t940\n8192\t60\n"),
        ("t.json", '[{"M": 64, "weight": 940}, {"M": 8192, "weight": 60}]'),
        ("t.json", '{"gemm": [{"M": 64, "weight": 940}, {"M": 8192, "weight": 60}]}'),
        ("t.csv", "\ufeffm;calls\n64.0;940\n8192;60\n"),
        ("t.csv", 'layer,M,weight\nqkv,64,"940"\nup,8192,60 %\n'),
    ],
)
def test_tables_are_read(tmp_path: Path, name: str, text: str) -> None:
    rows = read(tmp_path / name, text).rows
    assert [(row.label, row.launches, row.sizes) for row in rows] == [
        ("M=64", 940, {"M": 64}),
        ("M=8192", 60, {"M": 8192}),
    ]


def test_workloads_of_flashinfer_trace_are_counted(tmp_path: Path) -> None:
    lines = [{"definition": "gemm", "workload": {"axes": {"M": size}, "inputs": {}}} for size in (64, 64, 64, 512)]
    rows = read(tmp_path / "w.jsonl", "\n".join(map(json.dumps, lines))).rows
    assert [(row.label, row.launches) for row in rows] == [("M=64", 3), ("M=512", 1)]


def test_a_definition_of_flashinfer_trace_is_named(tmp_path: Path) -> None:
    tensor = {"shape": ["M", "H"], "dtype": "bfloat16"}
    definition = {"name": "rmsnorm", "axes": {"M": {"type": "var"}, "H": {"type": "const", "value": 4096}},
                  "inputs": {"x": tensor, "weight": {"shape": ["H"], "dtype": "bfloat16"}},
                  "outputs": {"y": tensor}, "reference": "def run(x, weight): ..."}  # fmt: skip
    with pytest.raises(AispError, match=r"rmsnorm\.json is a definition of FlashInfer-Trace") as raised:
        read(tmp_path / "rmsnorm.json", json.dumps(definition))
    assert raised.value.hint == "Give its workloads, the JSON lines of rmsnorm.jsonl."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,weight\n64,0\n128,1\n", "Row 1 of t.csv: its weight is 0, and must be above 0"),
        ("M,weight\n64,3\n128,-1\n", "Row 2 of t.csv: its weight is -1"),
        ("M,weight\n64,nan\n128,1\n", "Row 1 of t.csv: its weight is nan"),
        ("M,weight\n64,3\n", "has 1 regime of mm"),
        ("M,weight\n", "has 0 regime"),
        ("B,weight\n64,3\n8,1\n", "there is no size 'B'; inputs names M, K"),
        ("shape,weight\n64x2x3,3\n8,1\n", "'64x2x3' has 3 sizes, and inputs names 2"),
        ("M\n64\n128\n", "it has no weight, launches, calls or count"),
        ("M,weight\n0,3\n128,1\n", "its M is 0, and must be an integer from 1 on"),
        ("M,weight\n64\n128,1\n", "its weight is None, and must be a number"),
        ("M,time_us,weight\n64,13.5,2\n128,20,1\n", "there is no size 'time_us'; inputs names M, K"),
    ],
)
def test_tables_that_are_no_workload_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AispError) as raised:
        read(tmp_path / "t.csv", text)
    assert raised.value.code == "BAD_WORKLOAD"
    assert message in raised.value.message


def operator(name: str, dims: list[list[int]], ts: float, strides: list[Any] | None = None) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["float"] * len(dims), "Concrete Inputs": [""] * len(dims),
            "Input Strides": strides or [[*size[1:], 1][: len(size)] for size in dims],
            "External id": int(ts)}  # fmt: skip
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 10.0, "args": args}


def trace(path: Path, events: list[dict[str, Any]]) -> str:
    document = {"schemaVersion": 1, "traceEvents": events}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return str(path)


def test_a_trace_gives_signatures_with_their_launches_strides_and_share(tmp_path: Path) -> None:
    events = [operator("aten::mm", [[4, 8], [8, 8]], 100.0 * at) for at in range(3)]
    events += [
        operator("aten::mm", [[64, 8], [8, 8]], 300.0, [[8, 1], [1, 8]]),
        operator("aten::relu", [[4, 8]], 390.0),
    ]
    found = reading.read(trace(tmp_path / "t.json.gz", events), [], FUNCTION, "mm")
    assert [(row.label, row.launches) for row in found.rows] == [
        ("[4, 8] [8, 8] float32", 3),
        ("[64, 8] [8, 8] by [1, 8] float32", 1),
    ]
    assert found.step_share == pytest.approx(40 / 400)
    drawn = next(iter(found.rows[1].arguments[1].draws.values()))
    assert drawn.source == "rng.randn(8, 8).permute(1, 0)"


def test_a_function_may_take_the_first_arguments_of_an_operator(tmp_path: Path) -> None:
    """As torch.nn.functional.layer_norm does: the operator has one argument more."""
    args = {"Input Dims": [[4, 8], [], [8], [8], [], []], "Concrete Inputs": ["", "[8]", "", "", "1e-05", "True"],
            "Input type": ["float", "ScalarList", "float", "float", "Scalar", "Scalar"]}  # fmt: skip
    events = [operator("aten::layer_norm", [[4, 8]], 0.0), operator("aten::layer_norm", [[4, 8]], 50.0)]
    events[0]["args"] |= {**args, "Input Strides": [[8, 1], [], [1], [1], [], []]}
    larger = {**args, "Input Dims": [[64, 8], *args["Input Dims"][1:]]}
    events[1]["args"] |= {**larger, "Input Strides": [[8, 1], [], [1], [1], [], []]}
    five = Parameters(("x", "shape", "weight", "bias", "eps"), required=frozenset({"x", "shape", "weight", "bias"}))
    path = trace(tmp_path / "t.json.gz", events)
    for name in ("layer_norm", "aten::layer_norm"):
        rows = reading.read(f"{path}:{name}", [], five, "norm").rows
        assert [argument.text for argument in rows[0].arguments] == ["input_0", "[8]", "input_2", "input_3", "1e-05"]
    with pytest.raises(AispError, match="norm takes 2 arguments"):
        reading.read(f"{path}:layer_norm", [], Parameters(("x", "shape"), required=frozenset()), "norm")


# As torch.profiler of PyTorch 2.13 records them: types and concrete values ("" of a tensor), by the operator's name.
RECORDED = {
    "layer_norm": [("float", [4, 128]), "[128]", ("float", [128]), ("float", [128]), "1.0000000000000001e-05", "True"],
    "embedding": [("float", [1000, 64]), ("long int", [4, 32]), "-1", "False", "False"],
    "addmm": [("float", [32]), ("float", [8, 16]), ("float", [16, 32]), "1", "1"],
    "batch_norm": [("float", [8, 16, 4, 4]), *[("float", [16])] * 4, "False", "0.10000000000000001", "1e-05", "True"],
    "scaled_dot_product_attention":
        [*[("float", [2, 4, 16, 8])] * 3, ("float", [16, 16]), "0.", "False", None, "False"],
    "conv2d": [("float", [2, 3, 16, 16]), ("float", [8, 3, 3, 3]), ("float", [8]), *["[1, 1]"] * 3, "1"],
    "index_select": [("float", [100, 64]), "0", ("long int", [32])],
    "cross_entropy_loss": [("float", [16, 10]), ("long int", [16]), None, "1", "-100", "0."],
}  # fmt: skip


def recorded(path: Path, name: str) -> str:
    """A trace of two calls of the operator, the second with a larger first tensor."""
    events = []
    for at in range(2):
        tensors = [each if isinstance(each, tuple) else None for each in RECORDED[name]]
        dims = [list(each[1]) if each else [] for each in tensors]
        next(each for each in dims if each)[0] *= at + 1
        event = operator(f"aten::{name}", dims, 100.0 * at)
        kinds = ["" if each is None else "ScalarList" if each[0] == "[" else "Scalar" for each in RECORDED[name]
                 if not isinstance(each, tuple)]  # fmt: skip
        event["args"] |= {
            "Input type": [each[0] if each else kinds.pop(0) for each in tensors],
            "Concrete Inputs": [each if isinstance(each, str) else "" for each in RECORDED[name]],
            "Input Strides": [[math.prod(each[place + 1 :]) for place in range(len(each))] for each in dims],
        }
        events.append(event)
    return f"{trace(path / 't.json.gz', events)}:{name}"


def given(path: Path, name: str, parameters: str) -> str:
    """The call of a function with these parameters, as the larger regime makes it."""
    file = path / "f.py"
    file.write_text(f"def f({parameters}):\n    return 0\n")
    read_parameters = sources.one(f"{file}:f").parameters
    row = reading.read(recorded(path, name), [], read_parameters, "f").rows[0]
    return ", ".join(f"{argument.name}={argument.text}" if argument.name else argument.text
                     for argument in row.arguments)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "call"),
    [
        ("layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-5",
         "input=input_0, normalized_shape=[128], weight=input_2, bias=input_3"),
        ("layer_norm", "x, w, b, epsilon=1e-6", "input_0, input_2, input_3"),
        ("layer_norm", "weight, bias, x", "weight=input_2, bias=input_3, x=input_0"),
        ("layer_norm", "x: Tensor, size: list[int], w: Tensor = None, b: Tensor = None",
         "input_0, [128], input_2, input_3"),
        ("embedding", "input, weight, max_norm=None", "input_1, weight=input_0"),
        ("addmm", "input, mat1, mat2, *, beta=1, alpha=1",
         "input=input_0, mat1=input_1, mat2=input_2"),
        ("batch_norm", "x, running_mean, running_var, weight=None, bias=None, training=False",
         "input_0, running_mean=input_3, running_var=input_4, weight=input_1, bias=input_2"),
        ("scaled_dot_product_attention", "attn_mask, query, key, value, scale=None",
         "attn_mask=input_3, query=input_0, key=input_1, value=input_2"),
        ("conv2d", "input, weight, bias=None, stride=1, padding=0",
         "input=input_0, weight=input_1, bias=input_2, stride=[1, 1], padding=[1, 1]"),
        ("index_select", "x, d, index", "input_0, 0, index=input_2"),
        ("cross_entropy_loss", "input, target, reduction='mean'", "input=input_0, target=input_1"),
    ],
)  # fmt: skip
def test_arguments_of_real_operators_are_given_by_name_or_order(
    tmp_path: Path, name: str, parameters: str, call: str
) -> None:
    assert given(tmp_path, name, parameters) == call


@pytest.mark.parametrize(
    ("name", "parameters", "drawn"),
    [
        ("embedding", "weight, indices", {"input_0": "rng.randn(1000, 64)", "input_1": "rng.randint(0, 1000, 4, 32)"}),
        ("index_select", "x, d, index", {"input_0": "rng.randn(100, 64)", "input_2": "rng.randint(0, 100, 32)"}),
        ("cross_entropy_loss", "input, target", {"input_1": "rng.randint(0, 10, 16)"}),
        (
            "batch_norm",
            "x, weight, bias, running_mean, running_var",
            {"input_3": "rng.randn(16)", "input_4": "rng.randn(16).abs()"},
        ),
    ],
)
def test_recorded_indices_reach_all_rows_and_a_variance_is_positive(
    tmp_path: Path, name: str, parameters: str, drawn: dict[str, str]
) -> None:
    file = tmp_path / "f.py"
    file.write_text(f"def f({parameters}):\n    return 0\n")
    row = reading.read(recorded(tmp_path, name), [], sources.one(f"{file}:f").parameters, "f").rows[0]
    texts = {label: draw.source for argument in row.arguments for label, draw in argument.draws.items()}
    assert drawn.items() <= texts.items()


def test_arguments_that_a_trace_cannot_tell_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(AispError, match="is x, shape, w, b cannot be told from the trace") as raised:
        given(tmp_path, "layer_norm", "x, shape, w=None, b=None")
    assert raised.value.hint
    assert "input, normalized_shape, weight, bias" in raised.value.hint
    lists = {"Input type": ["TensorList", "Scalar"], "Concrete Inputs": ["", "1"]}
    cat = operator("aten::cat", [[4, 8], []], 0.0)
    cat["args"] |= lists
    with pytest.raises(AispError, match="takes a list of tensors"):
        reading.read(trace(tmp_path / "t.json.gz", [cat]), [], FUNCTION, "cat")


def test_a_failure_says_how_arguments_were_ordered(tmp_path: Path) -> None:
    two = Parameters(("ids", "table"), required=frozenset({"ids", "table"}))
    row = reading.read(recorded(tmp_path, "embedding"), [], two, "f").rows[0]
    failure = Failure(target="f:f@[8]_same", code="BASELINE_RAISED", message="IndexError: indices must be long")
    told = measuring.explained(failure, {"f:f@[4]": "", "f:f@[8]": row.order}).message
    assert "long. By the order of aten::embedding, ids is weight, table is indices" in told


def test_what_a_program_does_before_its_steps_is_no_part_of_them(tmp_path: Path) -> None:
    """Weights are made for a millisecond; then ten steps of 100 µs call the operator twice, for 10 µs each."""
    events = [{**operator("aten::normal_", [[8, 8]], 0.0), "dur": 1000.0}]
    for step in range(10):
        begin = 1000.0 + 100.0 * step
        events += [operator("aten::mm", [[4, 8], [8, 8]], begin), operator("aten::mm", [[64, 8], [8, 8]], begin + 50.0)]
    events.append(operator("aten::relu", [[4, 8]], 1990.0))
    found = reading.read(trace(tmp_path / "t.json.gz", events), [], FUNCTION, "mm")
    assert found.step_share == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("suffix", "function", "code", "message"),
    [
        ("", "softmax", "NO_OPERATOR", "contains no operator 'softmax'"),
        (":aten::relu", "mm", "BAD_WORKLOAD", "mm takes 2 arguments, and aten::relu has 1 tensors"),
        (":aten::bmm", "mm", "NO_OPERATOR", "contains no operator 'aten::bmm'"),
        ("", "mm", "BAD_WORKLOAD", "has 1 regime of mm"),
    ],
)
def test_traces_that_are_no_workload_are_named(
    tmp_path: Path, suffix: str, function: str, code: str, message: str
) -> None:
    events = [operator("aten::mm", [[4, 8], [8, 8]], 0.0), operator("aten::relu", [[4, 8]], 50.0)]
    with pytest.raises(AispError) as raised:
        reading.read(trace(tmp_path / "t.json.gz", events) + suffix, [], FUNCTION, function)
    assert (raised.value.code, message in raised.value.message) == (code, True), raised.value.message


def test_a_trace_without_shapes_and_a_missing_file_are_named(tmp_path: Path) -> None:
    bare = [{**operator("aten::mm", [[4, 8], [8, 8]], 0.0), "args": {}}]
    with pytest.raises(AispError, match="contains no shapes"):
        reading.read(trace(tmp_path / "t.json.gz", bare), [], FUNCTION, "mm")
    with pytest.raises(AispError, match="There is no workload"):
        reading.read(str(tmp_path / "none.csv"), [], FUNCTION, "mm")


SLOW = "def f(x):\n    return x.sort().values\n"
# Right everywhere, quick for many rows only.
LARGE_ONLY = """
def f(x):
    if x.shape[0] < 100:
        for _ in range(6):
            x.sort()
    return x.sort().values
"""


@pytest.mark.slow
def test_a_pair_that_loses_where_most_calls_are_is_no_gain(ctx: Context, tmp_path: Path) -> None:
    from aisp_mcp.runs.tools import VerifyParams, aisp_verify_candidate

    files = {name: tmp_path / f"{name}.py" for name in ("often", "large")}
    files["often"].write_text(SLOW.replace("x.sort()", "(x.sort().values if x.shape[0] > 100 else x).sort()"))
    files["large"].write_text(LARGE_ONLY)
    table = tmp_path / "w.csv"
    table.write_text("rows,launches\n8,94\n2048,6\n")
    answer = aisp_verify_candidate(
        VerifyParams(target=str(files["often"]), candidate=str(files["large"]), preset="quick",
                     inputs="rows=8, x=randn(rows,64)", workload=str(table)), ctx,
    )  # fmt: skip
    assert answer.workload is not None
    assert answer.workload.verdict not in ("faster", "same"), answer.workload.sentence
    assert answer.passed is not True
    assert answer.workload.worst == "rows=8"
