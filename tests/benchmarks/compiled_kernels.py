"""Compile every Triton kernel of the shipped pairs for a GPU that need not be there, at the sizes of a GPU.

python compiled_kernels.py CAPABILITY: runs each program that imports Triton on tensors without memory (device `meta`);
what it launches is compiled with its real argument types and constants. Prints bytes of machine code by kernel as JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from aisp_mcp.judge.protocol.module_loader import load_module, load_spec

ROOT = Path(__file__).resolve().parents[2]
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
OPTIONS = {"num_warps", "num_stages"}


class MetaRng:
    """The Rng of a specification, drawing tensors without memory."""

    device = "meta"

    def randn(self, *shape: int, dtype: str = "float32", **_: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    rand = randn

    def randint(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        return self.randn(*shape, dtype=dtype)

    def permutation(self, n: int) -> Any:
        return self.randn(n, dtype="int64")

    def bernoulli(self, p: float, *shape: int) -> Any:
        return self.randn(*shape, dtype="bool")


def signature(kernel: Any, values: dict[str, Any]) -> tuple[dict[str, str], dict[tuple[int, ...], Any]]:
    """Types by argument and values by place of the compile-time ones."""
    types: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    for index, parameter in enumerate(kernel.params):
        value = values[parameter.name]
        if parameter.is_constexpr:
            types[parameter.name], constants[index,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            types[parameter.name] = POINTERS[value.dtype]
        else:
            types[parameter.name] = "fp32" if isinstance(value, float) else "i32"
    return types, constants


def compiler(target: GPUTarget, counts: dict[str, int], current_name: list[str]) -> Callable[..., None]:
    """A stand-in for JITFunction.run that compiles instead of launching. place: the program that runs, as one item."""

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS & kwargs.keys()}
        types, constants = signature(self, inspect.signature(self.fn).bind(*args, **kwargs).arguments)
        built = triton.compile(ASTSource(self, types, constants), target=target, options=options)
        counts[f"{current_name[0]}:{self.fn.__name__}:{len(counts)}"] = len(built.asm["cubin"])

    return run


def try_all(self: Any, *args: Any, **kwargs: Any) -> None:
    """A stand-in for Autotuner.run: every configuration."""
    for config in self.configs:
        chosen = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        self.fn.run(*args, **kwargs, **chosen)


def main(capability: int) -> None:
    counts: dict[str, int] = {}
    current_name = [""]
    JITFunction.run = compiler(GPUTarget("cuda", capability, 32), counts, current_name)
    Autotuner.run = try_all
    for baseline in sorted(ROOT.glob("benchmarks/*/baseline_*.py")) + sorted(ROOT.glob("labs/*/baseline_*.py")):
        name = baseline.stem.removeprefix("baseline_")
        programs = [baseline, *sorted(baseline.parent.glob(f"optimized_{name}*.py"))]
        programs = [path for path in programs if "import triton" in path.read_text("utf-8")]
        for path in programs:
            spec = load_spec(baseline, "default")
            params, inputs = (dict(make(MetaRng())) for make in (spec.params, spec.inputs))
            current_name[0] = f"{path.parent.name}/{path.stem}"
            if path == baseline:
                spec.run(**inputs, **params)
                continue
            module = load_module(path, "aisp_candidate")
            static = module.prepare(params, inputs) if hasattr(module, "prepare") else params
            module.run(**inputs, **static)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
