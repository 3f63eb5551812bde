"""Candidates whose extension cannot be built: the verdict shows the compiler's reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import LEAST, judge, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records.run import Skip

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
    assert "Error building extension 'own': error: 'frobnicate' was not declared" in comparison.sentence


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
