"""Candidates whose extension cannot be built: the verdict shows the compiler's reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import LEAST, judge, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records import Skip

pytest.importorskip("torch")
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


@pytest.mark.parametrize("verbose", ["False", "True"])
def test_an_extension_that_does_not_build_is_tried_once_and_named(tmp_path: Path, verbose: str) -> None:
    """Many programs of coding agents fall back to torch, and would be taken for what they never ran."""
    comparison = judge(tmp_path, builds(tmp_path, verbose, "False"))
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
