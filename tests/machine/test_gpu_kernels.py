"""The GPU kernels compute what the probes think they measure, under the interpreter and through the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERPRET = """
import torch
from aisp_mcp.machine.probes.children import triton_kernels as kernels
order = torch.randperm(64)
links = torch.zeros(64, dtype=torch.int32)
links[order] = torch.roll(order, -1).to(torch.int32)
out = order[:1].to(torch.int32)
for step in (10, 20, 64):
    kernels.chase(links, out, 10 if step < 64 else 44)
    assert int(out[0]) == int(order[step % 64]), step
data = torch.rand(20_000)
assert torch.allclose(kernels.read_all(data).sum(), data.sum(), rtol=1e-5)
data, out = torch.rand(3 * 8192), torch.empty(4)
assert kernels.sweep(data, out, 6) == 4 * 6 * 32768
# 24 blocks read: each of the three whole blocks eight times
assert torch.allclose(out.sum(), 8 * data.sum(), rtol=1e-5)
from aisp_mcp.machine.probes.children import triton_kernels as triton_matmul
a, b = (torch.randint(-128, 128, (512, 512), dtype=torch.int8) for _ in range(2))
product = torch.zeros(512, 512, dtype=torch.int32)
triton_matmul.matmul(a, b, product)
assert torch.equal(product.long(), a.long() @ b.long().t())
"""
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from aisp_mcp.machine.probes.children import triton_kernels as kernels
chase = triton.compiler.ASTSource(fn=kernels._chase, signature={"links": "*i32", "out": "*i32", "steps": "i32"})
ptx = triton.compile(chase, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"]
body = ptx[ptx.index("BB0"):]
assert body.count("ld.global") >= 1, "the chain has no load in its loop"
types = {"a": "*fp32", "out": "*fp32", "blocks": "i32", "steps": "i32", "BLOCK": "constexpr"}
sweep = triton.compiler.ASTSource(
    fn=kernels._sweep, signature=types, constexprs={(4,): 8192}, attrs={(0,): [["tt.divisibility", 16]]}
)
ptx = triton.compile(sweep, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"]
loop = ptx[ptx.index("rem.") :]
assert "ld.global.cg.v4" in loop, "the sweep does not read past the first-level caches, or not 16 bytes at a time"
from aisp_mcp.machine.probes.children import triton_kernels as triton_matmul
types = {"a": "*i8", "b": "*i8", "out": "*i32", "n": "i32", **dict.fromkeys(("ROWS", "COLUMNS", "DEPTH"), "constexpr")}
attrs = {(at,): [["tt.divisibility", 16]] for at in range(4)}
product = triton.compiler.ASTSource(
    fn=triton_matmul._matmul, signature=types, constexprs={(4,): 128, (5,): 256, (6,): 128}, attrs=attrs
)
built = triton.compile(product, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 4})
ptx = built.asm["ptx"]
assert "wgmma.mma_async" in ptx and "s32.s8.s8" in ptx, "no integer tensor-core instruction"
assert ".local" not in ptx, "spills"
assert built.metadata.shared <= 232_448, built.metadata.shared
"""


# Triton reads the variable when it is imported, and torch takes the longest.
BOTH = """
import os, sys, torch
for interpret, script in zip("10", sys.argv[1:], strict=True):
    if not (child := os.fork()):
        os.environ["TRITON_INTERPRET"] = interpret
        exec(script)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.torch
def test_the_kernels() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-c", BOTH, INTERPRET, COMPILE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout.split() == ["0", "0"], done.stderr[-2000:]
