"""Problems that write several values to one element are refused, because any of the values is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_support import write

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.formats import kernelbench
from aisp_mcp.suites.adapters.recording import recorder

torch = pytest.importorskip("torch")
PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, index, values):
        {body}
        return x


def get_inputs():
    return [torch.randn(256, 8), {index}, torch.randn(96, 8)]
"""
WRITES = {
    "assignment": "x[index] = values",
    "index_copy": "x = x.index_copy(0, index, values)",
    "scatter": "x = x.scatter(0, index[:, None].expand(-1, 8), values)",
}
DEFINED = {
    "sum": "x = x.index_add(0, index, values)",
    "accumulation": "x.index_put_((index,), values, accumulate=True)",
    "one value": "x[index] = 1.0",
    "mask": "x[x > 0] = x[x > 0] * 2",
}


def record(folder: Path, body: str, index: str) -> None:
    write(folder, {"problem": PROBLEM.format(body=body, index=index)})
    recorder.record(kernelbench.Reference(folder))


@pytest.mark.parametrize("body", WRITES.values(), ids=WRITES)
def test_repeated_indices_are_refused_where_values_overwrite_each_other(tmp_path: Path, body: str) -> None:
    with pytest.raises(BenchmarkError, match="any of them could stay") as error:
        record(tmp_path, body, "torch.randint(0, 256, (96,))")
    assert error.value.code == "UNDEFINED_OUTPUT"


@pytest.mark.parametrize("body", WRITES.values(), ids=WRITES)
def test_indices_that_differ_are_measured(tmp_path: Path, body: str) -> None:
    record(tmp_path, body, "torch.randperm(256)[:96]")


@pytest.mark.parametrize("body", DEFINED.values(), ids=DEFINED)
def test_repeated_indices_are_measured_where_their_order_is_without_effect(tmp_path: Path, body: str) -> None:
    record(tmp_path, body, "torch.randint(0, 256, (96,))")
