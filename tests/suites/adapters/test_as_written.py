"""Files as agents and authors write them: solutions next to a reference, one file for both, list sizes, dropout."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge import candidate_needs
from aisp_mcp.judge.candidate.adapted import Buffer, Slot
from aisp_mcp.judge.candidate.formats import gpumode
from aisp_mcp.judge.candidate.formats import kernelbench as kernelbench_format
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent import opening
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.suites.adapters import adapt, formats, writing
from aisp_mcp.suites.adapters.base import Problem, Recorded
from aisp_mcp.suites.adapters.kernelbench import needed_by
from aisp_mcp.suites.adapters.recording import recorder

torch = pytest.importorskip("torch")
TOPK = kernelbench.problem(
    "Largest of each row.",
    "return torch.topk(x, 4, dim=-1)",
    "torch.randn(ROWS, WIDTH)",
).replace("N = 192", "ROWS, WIDTH = 8, 64")
SHAPES = 'SHAPES = [{"rows": 4, "width": 32}, {"rows": 16, "width": 128}]\n'
YAML = "tolerance:\n  torch.float32: 1e-2\n"
SOLUTION = kernelbench.candidate("return torch.topk(x, 4, dim=-1)").replace("ModelNew", "Model")
TRITON = "import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n"
BOTH = kernelbench.problem("Both.", "return torch.relu(x)", "torch.randn(N, N)")
SUBMISSION = (
    "def custom_kernel(data):\n    x, y, scratch, output = data\n"
    "    output[:] = (x + 2 * y).flatten()\n    return output\n"
)
OWN = "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        kernel()\n        return x\n"


def found(path: Path, *candidates: Path, **constants: Any) -> list[Problem]:
    return formats.find(path, None, candidates, constants)


def record(problem: Problem, folder: Path) -> Recorded:
    support.write(folder, {name.removesuffix(".py"): text for name, text in problem.files.items()})
    reference: Any = formats.load(problem.format)
    return recorder.record(reference.Reference(folder, **problem.reference))


def hard(root: Path, solution: str = SOLUTION) -> Path:
    folder = support.write(root / "05_topk", {"reference": TOPK, "shapes": SHAPES, "solution": solution})
    (folder / "problem.yaml").write_text(YAML)
    return folder


def test_a_solution_beside_a_reference_is_one_target_per_shape(tmp_path: Path) -> None:
    problems = found(hard(tmp_path))
    assert [problem.name for problem in problems] == ["05_topk_0", "05_topk_1"]
    assert problems[1].candidates["solution"] == {
        "file": "solution.py",
        "kind": "Model",
        "constants": {"ROWS": 16, "WIDTH": 128},
        "mode": "eval",
    }
    assert problems[0].tolerance == {"float32": 0.01}
    assert len(found(hard(tmp_path), ROWS=2, WIDTH=8)) == 1


def test_shapes_may_name_constants_of_their_file(tmp_path: Path) -> None:
    folder = hard(tmp_path)
    (folder / "shapes.py").write_text('WIDE = 128\nSHAPES = [{"rows": 4, "width": WIDE}]\n')
    assert found(folder)[0].reference["constants"] == {"ROWS": 4, "WIDTH": 128}


def test_a_problem_that_takes_too_long_for_a_comparison_is_refused_after_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "CALL_S", 0.0)
    with pytest.raises(BenchmarkError) as refused:
        record(found(hard(tmp_path))[0], tmp_path / "sources")
    assert refused.value.code == "TOO_SLOW"


@pytest.mark.parametrize(
    ("name", "text", "recognised"),
    [
        ("softmax.py", kernelbench.PROBLEMS["softmax"], "kernelbench"),
        ("reference.py", TOPK, "kernelbench"),
        ("both.py", BOTH + OWN, "kernelbench"),
        ("functions.py", "def slow(x):\n    return x\n\n\ndef fast(x):\n    return x\n", None),
        ("test_speed.py", "def test_slow(benchmark):\n    benchmark(sum, [1])\n", None),
        ("broken.py", "def slow(:\n", None),
    ],
)
def test_a_problem_is_recognised_by_its_file(tmp_path: Path, name: str, text: str, recognised: str | None) -> None:
    (tmp_path / name).write_text(text)
    assert formats.recognised(str(tmp_path / name)) == recognised


def test_a_module_or_a_text_is_no_problem() -> None:
    assert formats.recognised("package.module:function") is None
    assert formats.recognised("def run(x):\n    return x\n") is None


def test_a_sidecar_tells_what_a_candidate_needs(tmp_path: Path) -> None:
    folder = hard(tmp_path)
    imports = "import os, helpers\nfrom reference import N  # of reference.py, not of other.py\n"
    (folder / "solution.py").write_text(imports + SOLUTION + "\nSOURCE = 'kernel.cu'\n")
    for name in ("helpers.py", "help.py", "os.py"):
        (folder / name).write_text("")
    (folder / "kernel.cu").write_text("__global__ void kernel() {}\n")
    (folder / "notes.json").write_text("{}")
    problem = found(folder)[0]
    assert sorted(problem.files) == [
        "problem.py",
        *(f"solution/{name}" for name in ("helpers.py", "kernel.cu", "reference.py", "solution.py")),
    ]
    (tmp_path / "out" / "solution").mkdir(parents=True)
    text = writing.files(problem, record(problem, tmp_path / "out"))["optimized_05_topk_0_solution.py"]
    assert "'cuda', 'nvcc')" in text


def test_a_candidate_without_a_model_leaves_the_others(cli_here: Any, tmp_path: Path, recorded_here: None) -> None:
    folder = hard(tmp_path)
    (folder / "solution_empty.py").write_text("x = 1\n")
    files = [str(folder / name) for name in ("solution.py", "solution_empty.py")]
    words = ["adapt", str(folder), "--set", "ROWS=2", "--set", "WIDTH=8", "--candidates", *files]
    done = cli_here("bench", *words, "--to", str(tmp_path / "pairs"), "--json")
    result = json.loads(done.stdout)["result"]
    assert result["problems"][0]["variants"] == ["kernelbench:05_topk_solution"]
    assert [(each["target"], each["code"]) for each in result["failed"]] == [("solution_empty.py", "NO_MODEL_NEW")]


def test_positions_and_the_problems_tolerance_are_declared(tmp_path: Path) -> None:
    problem = found(hard(tmp_path))[0]
    recorded = record(problem, tmp_path / "out")
    assert recorded.indices == {"out.1": ("x", 1)}
    assert recorded.outputs == ("float32", "int64")
    allowed = adapt.declared_tolerance(problem, recorded)
    text = writing.files(problem, recorded, allowed)["baseline_05_topk_0.py"]
    assert "Tolerance(absolute=0.01, approximate=0.01, indices={'out.1': ('x', 1)})" in text
    ast.parse(text)
    with pytest.raises(UsageError, match="declares no tolerance"):
        adapt.declared_tolerance(Problem("kernelbench", "a", "", {}, {}), recorded)


def test_a_solution_with_both_classes_is_ambiguous(tmp_path: Path) -> None:
    both = SOLUTION + SOLUTION.replace("Model(", "ModelNew(")
    with pytest.raises(BenchmarkError, match="defines both Model and ModelNew") as caught:
        found(hard(tmp_path, both))
    assert caught.value.code == "AMBIGUOUS"


def test_one_file_holds_problem_and_candidate(tmp_path: Path) -> None:
    text = TRITON.replace("@triton.jit\n", "@triton.jit\n") + BOTH + OWN
    (problem,) = found(support.write(tmp_path / "one", {"both": text}) / "both.py")
    assert "triton" not in problem.files["problem.py"]
    assert "ModelNew" not in problem.files["problem.py"]
    assert problem.files["own.py"] == text
    assert "same file" in problem.disclosed[0]
    written = writing.files(problem, record(problem, tmp_path / "out"))
    assert "REQUIRES = ('triton', 'torch', 'cuda')" in written["optimized_both_own.py"]


def test_a_copy_beside_its_problem_is_ambiguous_until_it_is_named(tmp_path: Path) -> None:
    folder = support.write(tmp_path / "two", {"relu": BOTH, "relu_mine": BOTH + OWN})
    with pytest.raises(BenchmarkError, match=r"candidate of relu.py .* or as a separate problem") as caught:
        found(folder)
    assert caught.value.code == "AMBIGUOUS"
    (problem,) = found(folder / "relu.py", folder / "relu_mine.py")
    assert problem.candidates["mine"]["kind"] == "ModelNew"
    with pytest.raises(BenchmarkError, match="not separate"):
        found(support.write(tmp_path / "three", {"a": BOTH.replace("torch.relu(x)", "ModelNew()(x)") + OWN}))


def test_the_reference_keeps_only_what_it_needs() -> None:
    text = "import a, b\nfrom x import y\nif True:\n    c = b\nb.setting = 1\nd = y\ndef f():\n    return c\n"
    source, names = needed_by(ast.parse(text), ["f"])
    assert source == "import a, b\nif True:\n    c = b\n\ndef f():\n    return c\n"
    assert "y" not in names


@pytest.mark.parametrize(
    ("text", "constants", "shape"),
    [
        ("layers = [64, 32]\n", {"layers": [8, 4]}, (8, 4)),
        ("layers = (64, 32)\n", {"layers": 16}, (16, 16)),
        ("height, width = 256, 256\nlayers = [height, width]\n", {"height": 8}, (8, 256)),
        ("n = 2 * 512\nlayers = (n, n // 2)\n", {"n": 6}, (6, 3)),
        ("n: int = int('7')\nlayers = (n, 3)\n", {"n": 5}, (5, 3)),
    ],
)
def test_lists_tuples_and_derived_sizes_are_set(tmp_path: Path, text: str, constants: Any, shape: Any) -> None:
    problem = kernelbench.problem("Sizes.", "return x * 2", "torch.randn(*layers)").replace("N = 192\n", text)
    (adapted,) = found(support.write(tmp_path / "in", {"sizes": problem}), **constants)
    assert record(adapted, tmp_path / "out").tensors[0].shape == shape


def test_unknown_sizes_name_the_known_ones(tmp_path: Path) -> None:
    (problem,) = found(support.write(tmp_path / "in", {"both": BOTH}), M=4)
    with pytest.raises(BenchmarkError, match="assigns nothing to M at its top level") as caught:
        record(problem, tmp_path / "out")
    assert caught.value.hint == "It assigns N there."
    assert adapt.constants(["a=[4,2]", "b=3"]) == {"a": [4, 2], "b": 3}


IN_ANOTHER_ORDER = (
    "order = torch.randperm(len(x.T), generator=torch.Generator().manual_seed(next(COUNT)))\n"
    "        return sum(x[:, part].sum(1) for part in order.split(16))"
)
NOISY = "return x * (1 + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(next(COUNT))))"


@pytest.mark.parametrize(("forward", "is_refused"), [(IN_ANOTHER_ORDER, False), (NOISY, True)])
def test_calls_may_differ_by_rounding_alone(tmp_path: Path, forward: str, is_refused: bool) -> None:
    """As with atomic additions, whose order no setting fixes."""
    text = kernelbench.problem("Unsteady.", forward, "torch.randn(16 * N, N)")
    text = text.replace("import torch\n", "import itertools\n\nimport torch\n\nCOUNT = itertools.count()\n", 1)
    [problem] = found(support.write(tmp_path / "in", {"unsteady": text}))
    if is_refused:
        with pytest.raises(BenchmarkError) as refused:
            record(problem, tmp_path / "out")
        assert refused.value.code == "NOT_DETERMINISTIC"
    else:
        assert record(problem, tmp_path / "out").notes[0].startswith("two calls with the same inputs differ by ")


@pytest.mark.parametrize(
    ("forward", "init", "mode"),
    [
        ("return self.drop(self.norm(x))", "        self.drop = nn.Dropout(0.5)\n" + kernelbench.NORM, "no_dropout"),
        ("return nn.functional.dropout(self.norm(x), 0.5, self.training)", kernelbench.NORM, "eval"),
    ],
)
def test_dropout_is_evaluated(tmp_path: Path, forward: str, init: str, mode: str) -> None:
    text = kernelbench.problem("Dropout.", forward, "torch.randn(N, N)", init, "[N]")
    (problem,) = found(support.write(tmp_path / "in", {"drop": text}))
    recorded = record(problem, tmp_path / "out")
    assert recorded.settings == {"mode": mode, "random": True}
    assert "evaluation mode" in recorded.notes[0]
    assert f"'mode': '{mode}'" in writing.files(problem, recorded)["baseline_drop.py"]


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        ("nn.functional.relu(self.drop(x))", None),
        ("nn.functional.relu(x)", "the candidate's never vary"),
        ("nn.functional.dropout(nn.functional.relu(x), 0.5, self.training)", "with dropout layers off as well"),
    ],
)
def test_a_candidate_that_is_random_elsewhere_asks_for_evaluation_mode(
    tmp_path: Path, forward: str, told: str | None
) -> None:
    init = "        self.drop = nn.Dropout(0.5)"
    text = kernelbench.problem("Dropout.", "return self.drop(nn.functional.relu(x))", "torch.randn(N, N)", init, "[N]")
    own = kernelbench.candidate(f"return {forward}", init)
    support.write(tmp_path / "out", {"problem": text, "own": own})
    arguments, example = [Slot("x")], {"x": torch.randn(8, 8)}
    candidate = kernelbench_format.Candidate(tmp_path / "out", "own.py", arguments, mode="no_dropout", random=True)
    if told is None:
        assert "module" in candidate.prepare({}, example)
        return
    with pytest.raises(BenchmarkError) as refused:
        candidate.prepare({}, example)
    missing = candidate_needs.told_by(refused.value.message, "cpu")
    assert missing
    assert missing.startswith("--mode eval: ")
    assert told in missing


def test_a_problem_that_cannot_fit_is_refused_by_its_size(tmp_path: Path, recorded_here: None) -> None:
    text = BOTH.replace("N = 192", "N = 1 << 20")
    (problem,) = found(support.write(tmp_path / "in", {"big": text}))
    support.write(tmp_path / "out", {name.removesuffix(".py"): text for name, text in problem.files.items()})
    with pytest.raises(BenchmarkError, match=r"take 8192.0 GiB, the largest of them .* \(1048576, 1048576\)") as caught:
        adapt.record(problem, tmp_path / "out")
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, json\n", None),
        ("import tilelang_missing\n", "the package tilelang_missing"),
        ("try:\n    import tilelang_missing\nexcept ImportError:\n    pass\n", None),
        ("import beside\n", None),
        ("import sys\nsys.path.insert(0, '/x')\nimport tilelang_missing\n", None),
        ("import triton\n", "a CUDA device"),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('a', 'int a;', cuda_sources='b')\n", "a CUDA"),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('a', 'int a;', cuda_sources='')\n", None),
        ("REQUIRES = ('json', 'cuda')\n", "a CUDA device"),
        ("def build():\n    return load(source='__global__ void f() {}')\n", "a CUDA device"),
        ("'A kernel has __global__ before its name.'\n", None),
        ("import torch\ngraph = torch.cuda.CUDAGraph()\n", "a CUDA device"),
        ("import torch\nif torch.cuda.is_available():\n    graph = torch.cuda.CUDAGraph()\n", None),
    ],
)
def test_a_candidate_that_cannot_run_here_is_a_skip(tmp_path: Path, text: str, expected: str | None) -> None:
    folder = support.write(tmp_path, {"mine": text, "beside": ""})
    lacking = candidate_needs.lacks(folder / "mine.py", "cpu")
    assert (lacking or "").startswith(expected) if expected else lacking is None


def test_the_file_of_an_adapted_candidate_names_its_compilers(tmp_path: Path) -> None:
    """The processes that workers are forked from import what it names."""
    candidate = kernelbench.candidate("return torch.compile(torch.relu)(x)")
    problem = kernelbench.problem("ReLU.", "return torch.relu(x)", "torch.randn(N, N)")
    [found_problem] = found(support.write(tmp_path / "in", {"relu": problem, "relu_mine": candidate}))
    texts = writing.files(found_problem, record(found_problem, tmp_path / "_relu"))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    pair = Pair("kernelbench:relu", tmp_path / "baseline_relu.py", "mine", tmp_path / "optimized_relu_mine.py")
    assert "It compiles code with torch.compile." in texts[pair.path.name]
    assert opening.of_candidate(pair) == ["torch._inductor.compile_fx"]
    assert opening.of_baseline(pair.baseline) == []


def test_a_triton_candidate_on_a_cpu_is_a_named_skip(cli_here: Any, tmp_path: Path, recorded_here: None) -> None:
    folder = support.write(tmp_path / "in", {"both": TRITON + BOTH + OWN})
    done = cli_here("bench", "run", "--from", str(folder / "both.py"), "--preset", "quick", "--json", timeout=120)
    result = json.loads(done.stdout)["result"]
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    assert [row["code"] for row in result["skipped"]] == ["NEEDS"]
    assert "a CUDA device" in result["skipped"][0]["missing"]


def test_a_baseline_that_cannot_be_imported_is_the_baselines_fault(cli_here: Any, tmp_path: Path) -> None:
    baseline = (
        '"""Twice."""\nimport not_there\nfrom aisp_mcp.bench import Benchmark\n\n\nclass Twice(Benchmark):\n'
        "    def inputs(self, rng):\n        return {'x': rng.randn(4)}\n\n"
        "    def run(self, x):\n        return x * 2\n"
    )
    texts = {"baseline_twice": baseline, "optimized_twice_own": '"""Twice."""\n\n\ndef run(x):\n    return x\n'}
    folder = support.write(tmp_path / "suite", texts)
    words = ("--targets", "suite:twice", "--bench-root", str(folder), "--preset", "quick", "--json")
    done = cli_here("bench", "run", *words, timeout=200)
    assert "No module named 'not_there' at baseline_twice.py:2" in done.stdout
    assert "incorrect" not in done.stdout


def test_sizes_that_are_set_hold_in_a_copy_of_them_too(tmp_path: Path) -> None:
    text = BOTH.replace("torch.relu(x)", "x * torch.ones(N)").replace("N = 192", "N = 3 * 64\nM = 4")
    mine = text + "\n\nclass ModelNew(Model):\n    pass\n"
    folder = support.write(tmp_path / "in", {"both": text, "mine": mine.replace("M = 4", "M = 5")})
    (problem,) = found(folder / "both.py", folder / "mine.py", N=8, M=2)
    recorded = record(problem, tmp_path / "out")
    arguments: Any = Slot("x")
    settings = problem.candidates["mine"]
    candidate = kernelbench_format.Candidate(tmp_path / "out", arguments=[arguments], **settings)
    assert recorded.tensors[0].shape == (8, 8)
    module = candidate.prepare({}, {"x": torch.ones(8, 8)})
    assert candidate.run(x=torch.ones(8, 8), **module).shape == (8, 8)
    assert sys.modules["kernelbench_candidate"].M == 5  # its own


def test_a_candidate_that_is_not_python_is_named_with_its_line(tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"both": BOTH, "both_mine": BOTH + "\n```\n"})
    with pytest.raises(BenchmarkError, match=r"both_mine.py is not a Python file: .* in line") as caught:
        found(folder / "both.py", folder / "both_mine.py")
    assert caught.value.code == "NOT_PYTHON"


def test_memory_for_an_output_is_no_input(tmp_path: Path) -> None:
    reference = (
        "import torch\n\n\ndef ref_kernel(data):\n    x, y, scratch, output = data\n"
        "    return (x + y * 2).double()\n\n\n"
        "def generate_input(n, seed):\n    x = torch.empty(n, n)\n    x.copy_(torch.randn(n, n))\n"
        "    return x, torch.randn(n, n), torch.randn(n, n), torch.empty(n * n)\n"
    )
    folder = support.write(tmp_path / "task", {"reference": reference, "submission": SUBMISSION})
    (folder / "task.yml").write_text("tests: [{n: 16, seed: 1}]\n")
    (problem,) = found(folder)
    recorded = record(problem, tmp_path / "out")
    assert [tensor.name for tensor in recorded.tensors] == ["input_0", "input_1", "input_2"]
    assert recorded.in_place == ()
    assert recorded.outputs == ("float32",)
    assert recorded.notes == ("memory for the output, new in every call: input_3",)
    text = writing.files(problem, recorded)["baseline_task_0.py"]
    assert "Buffer((256,), 'float32')" in text
    assert "import Buffer, Slot" in text
    arguments = eval(recorded.arguments, {"Slot": Slot, "Buffer": Buffer})
    candidate = gpumode.Candidate(tmp_path / "out", "candidate_submission.py", arguments)
    x, y = torch.randn(2, 16, 16)
    reference_again = gpumode.Reference(tmp_path / "out", problem.reference["given"], arguments)
    given = {"input_0": x, "input_1": y, "input_2": x}
    assert torch.allclose(candidate.run(**given), reference_again.run(**given))
    assert set(reference_again.recipe(CallRng("cpu", 1))) == set(given)
