"""C++ candidates of other suites' problems: found by their launch headers, compiled, and judged like the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.suites.adapters import adapt, base, formats

TOTAL = """/* Rows by {words}.

launch:
  function: total
  arguments: [x, out, "x.shape[0]", "x.shape[1]"]
  outputs: {{out: {{shape: ["x.shape[0]"], dtype: float32}}}}
*/
#include <cstdint>

extern "C" int total(const float* x, float* out, int64_t rows, int64_t columns) {{
    for (int64_t row = 0; row < rows; ++row) {{
        double sum = 0;
        for (int64_t at = 0; at < {end}; ++at) sum += x[row * columns + at];
        out[row] = float(sum);
    }}
    return 0;
}}
"""
HONEST, HALF = TOTAL.format(words="rows", end="columns"), TOTAL.format(words="halves", end="columns / 2")
GEMM = """/* Three loops; the workload's scale is a constant here.

launch:
  function: gemm
  arguments: [A, B, C, "A.shape[0]", "B.shape[0]", "A.shape[1]"]
  outputs: {{C: {{shape: ["A.shape[0]", "B.shape[0]"], dtype: float32}}}}
*/
#include <cstdint>

extern "C" int gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {{
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {{
            double sum = 0;
            for (int64_t at = 0; at < k; ++at) sum += double(a[i * k + at]) * b[j * k + at];
            c[i * n + j] = float(sum * {scale});
        }}
    return 0;
}}
"""

ADD = """/* One loop.

launch:
  function: add
  arguments: [input_0, input_1, out, input_0.numel]
  outputs: {out: {like: input_0}}
*/
#include <cstdint>

extern "C" int add(const float* a, const float* b, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    return 0;
}
"""


def solution(name: str, text: str, language: str = "cpp") -> str:
    """A solution of one source file."""
    spec = {"language": language, "entry_point": "kernel.cpp::gemm"}
    return json.dumps({"name": name, "spec": spec, "sources": [{"path": "kernel.cpp", "content": text}]})


def test_headers_are_recognised() -> None:
    assert base.has_launch_header(HONEST)
    assert not base.has_launch_header("/* A comment. */\nint main() {}\n")
    assert not base.has_launch_header("int main() {}\n/*\nlaunch:\n*/\n")


def test_files_with_launch_headers_are_candidates_of_their_problem(tmp_path: Path) -> None:
    names = ("total", "softmax")
    folder = support.write(tmp_path / "in", {name: kernelbench.PROBLEMS[name] for name in names})
    (folder / "total_fast.cpp").write_text(HONEST)
    (folder / "notes.cpp").write_text("int main() { return 0; }\n")
    by_name = {format.name: format for format in formats.find(folder, None, (), {})}
    assert {name: dict(value.native) for name, value in by_name.items()} == {
        "total": {"fast": (".cpp", HONEST)},
        "softmax": {},
    }
    (named,) = formats.find(folder / "total.py", "kernelbench", [folder / "total_fast.cpp"], {})
    assert (list(named.native), list(named.candidates)) == (["fast"], [])


def test_solutions_in_cpp_and_cuda_need_a_launch_header(tmp_path: Path) -> None:
    folder = support.flashinfer_folder(tmp_path, "gemm")
    (folder / "solution_cpp.json").write_text(solution("loops", GEMM.format(scale="0.5")))
    (folder / "solution_cu.json").write_text(solution("device", GEMM.format(scale="0.5"), "cuda"))
    (problem,) = formats.find(folder, None, (), {})
    assert {name: suffix for name, (suffix, _) in problem.native.items()} == {"loops": ".cpp", "device": ".cu"}
    (folder / "solution_cu.json").write_text(solution("bound", "#include <torch/extension.h>\n", "cuda"))
    with pytest.raises(BenchmarkError, match="not as one file with a launch header") as caught:
        formats.find(folder, None, [folder / "solution_cu.json"], {})
    assert caught.value.code == "UNSUPPORTED_LANGUAGE"


def test_inputs_stay_with_the_recipe_where_asked(ctx: Any, tmp_path: Path, recorded_here: None) -> None:
    pytest.importorskip("torch")
    file = support.write(tmp_path / "in", {"total": kernelbench.PROBLEMS["total"]}) / "total.py"
    (one,) = adapt.adapt(ctx, adapt.AdaptRequest(str(file), recipe=["x"]), tmp_path / "out").problems
    assert [each.how for each in one.inputs] == ["recipe"]
    assert one.disclosed == ["drawn by the problem's own code under a secret seed: x"]
    assert "own['x']" in (tmp_path / "out/kernelbench/baseline_total.py").read_text()
    with pytest.raises(UsageError, match="has the input 'y'"):
        adapt.adapt(ctx, adapt.AdaptRequest(str(file), recipe=["y"]), tmp_path / "out")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_cpp_candidates_are_judged(cli: Any, tmp_path: Path) -> None:
    problems = support.write(tmp_path / "kernelbench", {"total": kernelbench.PROBLEMS["total"]})
    (problems / "total_honest.cpp").write_text(HONEST)
    (problems / "total_cheat_half.cpp").write_text(HALF)
    data = support.flashinfer_folder(tmp_path, "gemm")
    for file in data.glob("solution*.json"):
        file.unlink()
    for name, scale in (("honest", "0.5"), ("cheat_unscaled", "1.0")):
        (data / f"solution_{name}.json").write_text(solution(name, GEMM.format(scale=scale)))
    task = support.gpumode_folder(tmp_path, "vectoradd")
    for file in task.glob("submission*.py"):
        file.unlink()
    (task / "submission_honest.cpp").write_text(ADD)
    seen = 0
    for folder in (problems, data, task):
        done = cli("bench", "run", "--from", str(folder), "--preset", "quick", "--json", timeout=600)
        result = json.loads(done.stdout)["result"]
        assert result["failed"] == []
        for one in result["rulings"]:
            assert (one["verdict"] in ("incorrect", "invalid")) == ("cheat" in one["target"]), one
            seen += 1
    assert seen == 5


def test_sizes_of_a_source_are_numbers() -> None:
    assert adapt.constants(["N=64", "rate=0.5"]) == {"N": 64, "rate": 0.5}
    with pytest.raises(UsageError, match="gives no number"):
        adapt.constants(["dtype=bfloat16"])
