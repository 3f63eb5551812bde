"""Comparisons in which memory decides: modules of a first call, and memory that no process shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import harness_support as support
import pytest

from aisp_mcp.judge.parent.timing.memory.accounting import mappings, open_files
from aisp_mcp.judge.parent.timing.memory.imports import of_libraries
from aisp_mcp.process import forbidden, isolation

STACKED = '''
    """A sum over copies; what counts is memory."""
    import torch
    from aisp_mcp.bench import Benchmark
    class Stacked(Benchmark):
        goal = "memory"
        def inputs(self, rng):
            return {"x": rng.randn(256, 256)}
        def run(self, x):
            return torch.stack([x] * 8).sum(0)
'''
WITH_HELPER = """
    import torch
    def run(x):
        import helper_of_a_candidate  # tests/front
        return torch.stack([x] * 8).sum(0)
"""


@pytest.mark.timeout(120)
def test_a_candidates_module_never_runs_in_a_baselines_process(tmp_path: Path) -> None:
    """It patched the baseline's own program, which then needed three times the memory."""
    comparison = support.judge(tmp_path, WITH_HELPER, STACKED)
    assert comparison.ratio is not None
    assert comparison.ratio < 1.3
    assert comparison.disclosed["imports"] == []


NAMES_A_COMPILER = """
    import sys, torch
    assert "torch._inductor.compile_fx" not in sys.modules  # which torch.compile imports
    def run(x):
        return torch.stack([x] * 8).sum(0)
"""


@pytest.mark.timeout(120)
def test_what_a_candidate_would_import_is_not_loaded_for_its_baseline(tmp_path: Path) -> None:
    comparison = support.judge(tmp_path, NAMES_A_COMPILER, STACKED)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence


ELSEWHERE = """
    import os
    def attempt(what):
        try:
            what()
        except OSError as error:
            return type(error).__name__
        return "was possible"
    def run(x):
        open("kept", "w").close()
        attempts = (os.openpty, lambda: os.symlink("x", "link"), lambda: os.setxattr("kept", "user.a", b"x"))
        raise RuntimeError(", ".join(map(attempt, attempts)))
"""


@pytest.mark.skipif(isolation.probe().level < "L2" or not forbidden.has_filter(), reason="nothing is forbidden here")
def test_memory_of_the_kernel_that_belongs_to_no_process_is_out_of_reach(tmp_path: Path) -> None:
    """Buffers of pseudo-terminals, targets of links and attributes of files held what a program did not show."""
    sentence = support.judge(tmp_path, ELSEWHERE, STACKED).sentence
    assert sentence.count("Error") == 4, sentence
    assert "was possible" not in sentence


def test_modules_of_a_callers_folder_are_not_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper_of_the_candidate.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert of_libraries(["json", "torch.fft", "helper_of_the_candidate", "aisp_candidate"]) == ["json", "torch.fft"]


def test_what_waits_in_pipes_and_sockets_counts() -> None:
    import socket

    before = open_files(os.getpid())

    def added() -> int:
        return sum(size for file, size in open_files(os.getpid()).items() if file not in before)

    reader, writer = os.pipe()
    here, there = socket.socketpair()
    os.write(writer, bytes(50_000))
    here.sendall(bytes(60_000))
    assert added() >= 110_000
    here.close()  # nobody but the receiver has it now
    assert added() >= 110_000
    for fd in (reader, writer):
        os.close(fd)
    there.close()


def test_pages_of_a_shared_mapping_count_after_they_were_given_back() -> None:
    import mmap

    area = mmap.mmap(-1, 3 << 20)
    area.write(bytes(3 << 20))
    area.madvise(mmap.MADV_DONTNEED)
    assert 3 << 20 in mappings(os.getpid()).nameless.values()
    area.close()
