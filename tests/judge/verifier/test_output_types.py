"""Outputs of every dtype and structure: right ones pass, wrong ones fail, and the rest is refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.errors import BenchmarkError  # noqa: E402
from aisp_mcp.judge.options import ALL  # noqa: E402
from aisp_mcp.judge.protocol.draws.rng import MODES  # noqa: E402
from aisp_mcp.judge.verifier.main import Verifier  # noqa: E402

BASELINE = '''"""An output of some type."""
import dataclasses

import torch

from aisp_mcp.bench import Benchmark


@dataclasses.dataclass
class Pair:
    left: object


class Typed(Benchmark):
    def inputs(self, rng):
        return {"x": rng.randn(16, 64)}

    def run(self, x):
        return EXPRESSION
'''
CANDIDATE = 2  # of the three workers of a replicate
OUTPUTS = {
    "bool": "x > 0",
    **{name: f"(x * 9).to(torch.{name})" for name in ("int8", "int16", "int32", "int64")},
    "uint8": "(x.abs() * 9).to(torch.uint8)",
    **{name: f"x.to(torch.{name}) * 2" for name in ("float16", "bfloat16", "float32", "float64")},
    **{name: f"x.to(torch.{name})" for name in ("float8_e4m3fn", "float8_e5m2")},
    "complex64": "torch.complex(x, x * 2)",
    "complex128": "torch.complex(x, x * 2).to(torch.complex128)",
    "scalar": "x.sum()",
    "tuple": "(x * 2, x > 0)",
    "list": "[x * 2, (x * 9).int()]",
    "dict": "{'values': x * 2, 'mask': x > 0}",
    "an empty one beside another": "(x[:0], x * 2)",
}
REFUSED = {
    "None": ("None", "NoneType"),
    "int": ("int(x.sum())", "int"),
    "str": ("'text'", "str"),
    "numpy": ("x.numpy()", "ndarray"),
    "dataclass": ("Pair(x)", "Pair"),
    "nested": ("(x, (x, x))", "tuple"),
    "a None beside a tensor": ("(x, None)", "NoneType"),
    "sparse": ("x.to_sparse()", "torch.sparse_coo"),
}


def opened(folder: Path, expression: str) -> Verifier:
    """A verifier with the memory of one candidate's worker."""
    file = folder / "baseline_typed.py"
    file.write_text(BASELINE.replace("EXPRESSION", expression))
    names = ("control", "arena")
    fds = [tuple(os.memfd_create(name, os.MFD_ALLOW_SEALING) for name in names) for _ in range(CANDIDATE + 1)]
    verifier = Verifier(fds)
    verifier.open(str(file), "default", "cpu", vars(ALL), 1, 1 << 20, 0.01)
    verifier.attach(CANDIDATE)
    verifier.params([CANDIDATE], 7)
    return verifier


def wrong(tensor: Any) -> Any:
    """The same tensor, every element of it off by more than any rounding."""
    if tensor.dtype == torch.bool:
        return ~tensor
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor + 1
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    return (wide + 200 * ((wide.abs().amax() if wide.numel() else 0) + 1)).to(tensor.dtype)


@pytest.mark.parametrize("expression", OUTPUTS.values(), ids=OUTPUTS)
def test_right_outputs_pass_and_wrong_ones_fail_in_every_mode(tmp_path: Path, expression: str) -> None:
    verifier = opened(tmp_path, expression)
    for mode in MODES:
        for change, accepted in ((lambda tensor: tensor, True), (wrong, False)):
            verifier.fill({str(CANDIDATE): 1}, 5, mode)
            right = eval(expression, {"torch": torch, "x": verifier.arenas[CANDIDATE].inputs(0)["x"]})
            tensors = [right[key] for key in sorted(right)] if isinstance(right, dict) else right
            tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            for place, tensor in zip(verifier.arenas[CANDIDATE].outputs(0), tensors, strict=True):
                place.copy_(change(tensor))
            answer = verifier.check(CANDIDATE, [0])
            assert (answer["failure"] is None) == accepted, (mode, answer)


@pytest.mark.parametrize(("expression", "kind"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_refused_by_its_name(tmp_path: Path, expression: str, kind: str) -> None:
    with pytest.raises(BenchmarkError, match=kind) as refused:
        opened(tmp_path, expression)
    assert refused.value.code == "BAD_TENSOR"
    assert "tuple, list or dict" in str(refused.value.hint)
