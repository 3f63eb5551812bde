"""Contracts of outputs beyond values, and the memory that calls add."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aisp_mcp.judge.parent.timing.memory.accounting import footprint

torch = pytest.importorskip("torch")

from aisp_mcp.judge.candidate.outputs import OutputRules, SharedOutputError, refuse_shared  # noqa: E402
from aisp_mcp.judge.protocol.module_loader import contract  # noqa: E402

MB = 1 << 20


def test_a_baseline_that_expands_has_a_contract_that_can_be_stored() -> None:
    assert contract("out", torch.zeros(1, 6).expand(4, 6)).stride == (6, 1)
    assert contract("out", torch.zeros(4, 12)[:, ::2]).stride == (6, 1)
    assert contract("out", torch.zeros(6, 4).t()).stride == (1, 4)


def test_an_output_in_the_memory_of_an_input_is_refused() -> None:
    x = torch.zeros(8, 8)
    rules = OutputRules(apart=True, off_limits=[(x.data_ptr(), x.data_ptr() + x.nbytes)])
    refuse_shared({"a": x.clone()}, rules)
    for shared in (x, x[3:], x.view(-1)):
        with pytest.raises(SharedOutputError):
            refuse_shared([torch.ones(1), shared], rules)
    one = torch.ones(4)
    refuse_shared([one[:2], one[2:]], rules)
    with pytest.raises(SharedOutputError, match="share memory"):
        refuse_shared([one, torch.ones(4), one.view(2, 2)], rules)


HOLDERS = {
    "anonymous": "kept = bytearray(b'x') * (24 << 20)",
    "memfd": "fd = os.memfd_create('x'); os.write(fd, bytes(24 << 20)); os.lseek(fd, 0, 0)",
    "unnamed": "import tempfile; f = tempfile.TemporaryFile(); f.write(bytes(24 << 20)); f.flush()",
    "mapped": (
        "import mmap; fd = os.memfd_create('x'); os.truncate(fd, 24 << 20); m = mmap.mmap(fd, 24 << 20); "
        "m[:] = bytes(24 << 20)"
    ),
}


@contextmanager
def holding(code: str) -> Iterator[int]:
    """A process that has done this and waits."""
    program = f"import os, sys\nsys.stdin.readline()\n{code}\nprint(flush=True)\nsys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = footprint([process.pid]).counted
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        try:
            yield footprint([process.pid]).counted - before
        finally:
            process.kill()


@pytest.mark.parametrize("kind", HOLDERS)
def test_memory_counts_wherever_it_is_held_and_once(kind: str) -> None:
    with holding(HOLDERS[kind]) as added:
        assert added + 64 * 1024 >= 24 * MB
        assert added < 40 * MB  # importing a module takes its part


def test_files_that_are_only_read_are_no_memory() -> None:
    large = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    with holding(f"f = open({large!r}, 'rb')") as added:
        assert os.path.getsize(large) > 40 * MB
        assert added < 20 * MB
