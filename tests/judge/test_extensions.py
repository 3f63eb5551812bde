"""Candidates whose extension cannot be built: the verdict shows the compiler's reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import LEAST, judge, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records import Skip
from aisp_mcp.process import isolation

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
# As torch raises it where the compiler's output was printed (verbose=True).
FAILS = """
    import sys
    print("[1/2] c++ -c main.cpp\\nmain.cpp:3:10: {error}\\ncompilation terminated.", flush=True)
    raise RuntimeError("Error building extension 'own'")
"""


def test_the_compilers_first_error_is_shown(tmp_path: Path) -> None:
    comparison = judge(tmp_path, FAILS.format(error="error: 'frobnicate' was not declared in this scope"))
    assert comparison.verdict.value == "incorrect"
    assert "Error building extension 'own': main.cpp:3:10: error: 'frobnicate' was not declared" in comparison.sentence


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        (
            "main.cpp:3:10: fatal error: cutlass/cutlass.h: No such file or directory",
            "the header cutlass/cutlass.h, which the candidate's extension includes",
        ),
        (
            "/bin/sh: 1: /opt/cuda-12.8/bin/nvcc: not found",
            "the compiler /opt/cuda-12.8/bin/nvcc, which the candidate's extension is built with",
        ),
    ],
    ids=["header", "compiler"],
)
def test_what_the_compiler_lacks_on_this_machine_is_a_need(tmp_path: Path, printed: str, missing: str) -> None:
    candidate = FAILS.format(error="").replace("main.cpp:3:10: ", printed)
    found = compare(write_pair(tmp_path, candidate), Options(LEAST, "small", "cpu", tmp_path))
    assert isinstance(found, Skip)
    assert found.code == "CANDIDATE_NEEDS"
    assert found.missing == missing


# Instead of a compiler.
NINJA = """#!/bin/sh
[ "$1" = --version ] && exec echo 1.11.1
[ -e failed-build.json ] && echo "error: tried again"
echo "main.cpp:3:10: error: 'frobnicate' was not declared in this scope"
exit 1
"""
BUILDS = """
    import os
    os.environ["PATH"] = "TOOLS:" + os.environ["PATH"]
    from torch.utils.cpp_extension import load_inline
    folder = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "own")
    known = os.path.isdir(folder) and "failed-build.json" in os.listdir(folder)
    try:
        load_inline("own", ["int one() { return frobnicate(); }"], functions=["one"], verbose=VERBOSE)
    except RuntimeError as error:
        if RAISES or not known or "tried again" in str(error):
            raise
    def run(a, b):
        return a @ b
"""


def builds(folder: Path, verbose: str, raises: str) -> str:
    """A candidate that puts the tools in its folder on its path: with a path of their own, comparisons would load
    libraries once more.
    """
    tools = folder / "tools"
    tools.mkdir()
    (tools / "ninja").write_text(NINJA)
    (tools / "ninja").chmod(0o755)
    return BUILDS.replace("TOOLS", str(tools)).replace("VERBOSE", verbose).replace("RAISES", raises)


def test_an_extension_that_does_not_build_is_tried_once_and_named(tmp_path: Path) -> None:
    """Many programs of coding agents fall back to torch, and would be taken for what they never ran."""
    comparison = judge(tmp_path, builds(tmp_path, "True", "False"))
    assert comparison.verdict.value != "incorrect", comparison.sentence
    [flag] = [flag for flag in comparison.flags if flag.code == "extension_not_built"]
    words = "the candidate's extension 'own' was not built: main.cpp:3:10: error: 'frobnicate' was not declared"
    assert words in flag.message.lower()
    assert comparison.sentence.endswith(f"; {words} in this scope")


def test_the_error_of_one_that_raises_comes_before_the_rest_of_the_output(tmp_path: Path) -> None:
    comparison = judge(tmp_path, builds(tmp_path, "False", "True"))
    assert comparison.verdict.value == "incorrect"
    assert "Error building extension 'own': main.cpp:3:10: error: 'frobnicate'" in comparison.sentence
    assert not [flag for flag in comparison.flags if flag.code == "extension_not_built"]


# Instead of a compiler: a library of torch's own.
COPIES = """#!/bin/sh
[ "$1" = --version ] && exec echo 1.11.1
[ -e own.so ] || cp LIBRARY own.so
"""
BESIDE = """
    import os
    os.environ["PATH"] = "TOOLS:" + os.environ["PATH"]
    from torch.utils.cpp_extension import load
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "build")
    os.makedirs(build, exist_ok=True)
    known = "own.so" in os.listdir(build)
    source = os.path.join(os.path.dirname(__file__), "own.cpp")
    load("own", [source], build_directory=build, is_python_module=False)
    def run(a, b):
        return a @ b if known else a * 0
"""


@pytest.mark.skipif(isolation.probe().level not in isolation.NAMESPACES, reason="processes share their files")
def test_an_extension_beside_its_program_is_built_once_and_elsewhere(tmp_path: Path) -> None:
    """2 s of processor time."""
    tools = tmp_path / "tools"
    tools.mkdir()
    library = Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so"
    (tools / "ninja").write_text(COPIES.replace("LIBRARY", str(library)))
    (tools / "ninja").chmod(0o755)
    (tmp_path / "own.cpp").write_text("// a kernel\n")
    comparison = judge(tmp_path, BESIDE.replace("TOOLS", str(tools)))
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    assert not (tmp_path / "build").exists()
