"""The two GPU kernels compute what the probes think they measure, under the interpreter and through the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INTERPRET = """
import torch
from aisp_mcp.probes import triton_kernels as kernels
order = torch.randperm(64)
links = torch.zeros(64, dtype=torch.int32)
links[order] = torch.roll(order, -1).to(torch.int32)
out = order[:1].to(torch.int32)
for step in (10, 20, 64):
    kernels.chase(links, out, 10 if step < 64 else 44)
    assert int(out[0]) == int(order[step % 64]), step
data = torch.rand(20_000)
assert torch.allclose(kernels.read_all(data).sum(), data.sum(), rtol=1e-5)
"""
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from aisp_mcp.probes import triton_kernels as kernels
chase = triton.compiler.ASTSource(fn=kernels._chase, signature={"links": "*i32", "out": "*i32", "steps": "i32"})
ptx = triton.compile(chase, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]
body = ptx[ptx.index("BB0"):]
assert body.count("ld.global") >= 1, "the chain has no load in its loop"
"""


@pytest.mark.torch
@pytest.mark.parametrize(("script", "interpret"), [(INTERPRET, "1"), (COMPILE, "0")])
def test_the_kernels(script: str, interpret: str) -> None:
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": interpret}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr[-2000:]
