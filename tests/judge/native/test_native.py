"""C++ and CUDA candidates: found, compiled before anything runs, called on tensors, and judged like any other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness_support import LEAST

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.native import build as native_build
from aisp_mcp.judge.native.launch_header import HeaderError, expression, read
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent import hints
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.suites import discovery
from aisp_mcp.validity import corpus

ROOT = Path(__file__).resolve().parents[3] / "benchmarks"
BASELINE = '''"""Halves of a matrix and its rows' sums."""
from aisp_mcp.bench import Benchmark
class Halves(Benchmark):
    rows, columns = 24, 40
    def inputs(self, rng):
        return {"a": rng.randn(self.rows, self.columns)}
    def run(self, a):
        return {"half": a / 2, "sums": a.sum(1)}
'''
HEADER = """/* Two outputs and scratch.

launch:
  function: halves
  arguments: [a, half, sums, part, "a.shape[0]", "a.numel // a.shape[0]"]
  outputs: {half: {like: a}, sums: {shape: ["a.shape[0]"], dtype: float32}}
  scratch: {part: {shape: ["a.shape[1] * 2"], dtype: float64}}
  flags: [-fopenmp]
*/
#include <cstdint>
"""
BODY = """extern "C" int halves(const float* a, float* half, float* sums, double* part, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        double total = 0;
        for (int64_t i = 0; i < columns; ++i) {
            part[i] = a[row * columns + i];
            half[row * columns + i] = float(part[i] / 2);
            total += part[i];
        }
        sums[row] = float(total);
    }
    return CODE;
}
"""
needs_gxx = pytest.mark.skipif(not shutil.which("g++"), reason="the compiler g++ is missing")


def pair(folder: Path, text: str, suffix: str = ".cpp") -> Pair:
    base, path = folder / "baseline_halves.py", folder / f"optimized_halves{suffix}"
    base.write_text(BASELINE)
    path.write_text(text)
    return Pair("t:halves", base, suffix[1:], path)


def judged(folder: Path, text: str, suffix: str = ".cpp") -> Comparison | Skip:
    return compare(pair(folder, text, suffix), Options(LEAST, "small", "cpu", folder))


def test_files_in_both_languages_are_variants_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "ch01"
    folder.mkdir()
    pair(folder, HEADER)
    (folder / "optimized_halves.py").write_text("def run(a): return a\n")
    (folder / "optimized_halves_fast.cu").write_text("/* No header. */\n")
    (target,) = discovery.find_targets(tmp_path)
    assert [variant.name for variant in target.variants] == ["", "cpp", "fast_cu"]
    plain, cpp, cu = target.variants
    assert (cpp.summary, cpp.problem, cpp.needs) == ("Two outputs and scratch.", None, {"compiler": "g++"})
    assert cu.problem is not None
    assert "launch:" in cu.problem
    assert cu.needs == {"compiler": "nvcc", "gpus": 1}
    assert plain.needs == {}


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("3", "3"),
        ("a.numel", "a.numel()"),
        ("a.shape[-1] * 4", "(a.shape[-1] * 4)"),
        ("a.stride[0] // b.numel + 1", "((a.stride(0) // b.numel()) + 1)"),
    ],
)
def test_a_size_becomes_python_over_tensors(text: str, python: str) -> None:
    assert expression(text) == python


@pytest.mark.parametrize(
    "text",
    ["a", "a.data", "__import__('os')", "a.shape", "a.shape[i]", "a.shape[0] ** 2", "_a.numel", "1 if 1 else 2", ""],
)
def test_nothing_else_is_a_size(text: str) -> None:
    with pytest.raises(HeaderError):
        expression(text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("flags: [-fopenmp]", "flags: [-fplugin=evil.so]", "not one that"),
        ("flags: [-fopenmp]", "flags: ['@file']", "not one that"),
        ("function: halves", "function: 'ha lves'", "not a name"),
        ("  outputs", "  results", "outputs"),
        ("half: {like: a}", "half: {shape: [4]}", "dtype"),
        ("[a, half", "[stream, a, half", "no stream"),
        ("launch:", "launch: [", "not YAML"),
    ],
)
def test_a_header_that_cannot_be_carried_out_says_why(old: str, new: str, words: str) -> None:
    with pytest.raises(HeaderError, match=words):
        read(HEADER.replace(old, new), ".cpp")


def test_a_source_with_bindings_is_told_how_it_is_compiled() -> None:
    with pytest.raises(HeaderError, match="a candidate in Python that loads them"):
        read("#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n", ".cu")


def test_a_cuda_function_takes_the_stream() -> None:
    with pytest.raises(HeaderError, match="stream"):
        read(HEADER, ".cu")


@needs_gxx
@pytest.mark.torch
def test_a_candidate_with_scratch_and_two_outputs_is_right_and_leaves_its_build(tmp_path: Path) -> None:
    comparison = judged(tmp_path, HEADER + BODY.replace("CODE", "0"))
    assert isinstance(comparison, Comparison)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    build = comparison.disclosed["build"]
    assert "-fopenmp" in build["flags"]
    assert len(build["library_sha256"]) == 64
    assert build["compiler"]


@needs_gxx
@pytest.mark.torch
def test_an_error_code_is_an_incorrect_candidate(tmp_path: Path) -> None:
    comparison = judged(tmp_path, HEADER + BODY.replace("CODE", "7"))
    assert isinstance(comparison, Comparison)
    assert comparison.verdict.value == "incorrect"
    assert "returned 7" in comparison.flags[0].message


@needs_gxx
def test_what_does_not_compile_says_where_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError) as caught:
        judged(tmp_path, HEADER + BODY.replace("CODE", "undeclared_name"))
    assert caught.value.code == "COMPILE_FAILED"
    assert "undeclared_name" in caught.value.message
    assert "optimized_halves.cpp:" in caught.value.message


@needs_gxx
def test_a_file_beside_the_candidate_does_not_enter_its_library(tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("#define CODE 0\n")
    with pytest.raises(BenchmarkError) as caught:
        judged(tmp_path, HEADER + '#include "secret.h"\n' + BODY)
    assert "secret.h" in caught.value.message


@needs_gxx
def test_a_library_is_built_once_and_again_when_it_was_changed(tmp_path: Path) -> None:
    path = pair(tmp_path, HEADER + BODY.replace("CODE", f"{id(tmp_path)} - {id(tmp_path)}")).path
    library, facts = native_build.build(path, "native")
    built_at = library.stat().st_mtime_ns
    assert native_build.build(path, "native") == (library, facts)
    assert library.stat().st_mtime_ns == built_at
    library.write_bytes(b"another")
    assert native_build.build(path, "native")[1]["library_sha256"] == facts["library_sha256"]
    assert library.read_bytes() != b"another"


def test_a_missing_compiler_or_device_is_a_named_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = judged(tmp_path, HEADER.replace("flags: [-fopenmp]", ""), ".cu")
    assert isinstance(comparison, Skip)
    assert "CUDA" in comparison.missing
    monkeypatch.setenv("PATH", str(tmp_path))
    comparison = judged(tmp_path, HEADER)
    assert isinstance(comparison, Skip)
    assert comparison.missing == "the compiler g++"


def test_hints_point_at_threads_and_kept_state() -> None:
    text = HEADER + "static float kept[4];\nstatic void helper(int a) {}\nint f() { std::thread t; return 0; }\n"
    first = HEADER.count("\n") + 1
    assert hints.find_native(text) == {"threads": [first + 2], "state kept": [first]}


PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5stepsPKfPfl' for 'sm_90a'
ptxas info    : Function properties for _Z5stepsPKfPfl
    384 bytes stack frame, 424 bytes spill stores, 872 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 384 bytes cumulative stack size, 4224 bytes smem
ptxas info    : Compiling entry function '_Z3addPKfl' for 'sm_90a'
ptxas info    : Function properties for _Z3addPKfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


def test_registers_and_spills_are_read_from_the_assembler() -> None:
    first, second = native_build.kernels(PTXAS)
    assert first == {
        "name": "_Z5stepsPKfPfl",
        "target": "sm_90a",
        "registers": 32,
        "spill_stores_bytes": 424,
        "spill_loads_bytes": 872,
        "shared_bytes": 4224,
    }
    assert (second["registers"], second["spill_loads_bytes"], second["shared_bytes"]) == (12, 0, 0)


@pytest.mark.parametrize(
    ("capability", "name"), [("8.0", "sm_80"), ("9.0", "sm_90a"), ("10.0", "sm_100a"), ("12.0", "sm_120")]
)
def test_a_device_has_the_instructions_of_its_own_architecture(capability: str, name: str) -> None:
    assert native_build.architecture(capability) == name


NVCC = native_build.compiler(".cu")
KERNELS = sorted(ROOT.glob("*/*.cu"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(NVCC is None, reason="nvcc is in none of CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda/bin")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_every_shipped_kernel_assembles_for_every_architecture(target: str, tmp_path: Path) -> None:
    assert len(KERNELS) >= 12
    for path in KERNELS:
        read(path.read_text("utf-8"), ".cu")
        arch = f"-gencode=arch=compute_{target[3:]},code={target}"
        argv: list[Any] = [NVCC, "-std=c++17", arch, "-cubin", "-o", tmp_path / "kernel.cubin", path]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{path.name}: {done.stderr}"
        assert (tmp_path / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is in none of CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda/bin")
def test_a_kernel_that_spills_says_so_in_its_build() -> None:
    _, plain = native_build.build(ROOT / "ch06/optimized_damped_steps.cu", "sm_90a")
    _, spilled = native_build.build(ROOT / "ch06/optimized_damped_steps_spilled.cu", "sm_90a")
    assert [kernel["spill_loads_bytes"] for kernel in plain["kernels"]] == [0]
    assert spilled["kernels"][0]["spill_loads_bytes"] > 0


def test_attacks_in_native_code_stand_in_the_corpus() -> None:
    native = [case for case in corpus.cases() if case.suffix == ".cpp"]
    assert sum(case.kind == "attack" for case in native) >= 3
    assert sum(case.kind == "honest" for case in native) >= 2
