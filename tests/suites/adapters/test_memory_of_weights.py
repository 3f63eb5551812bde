"""Weights of an earlier replicate, and the modules that hold copies of them, are freed without a garbage collection."""

from __future__ import annotations

import gc
import itertools
import os
import weakref
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.parent.opening import memory_files
from aisp_mcp.judge.verifier.main import Verifier

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("recorded_here")]
PROBLEM = kernelbench.problem("Layers.", kernelbench.MLP, "torch.randn(8, N)", kernelbench.LAYERS, "[N]")


def test_weights_of_an_earlier_replicate_are_freed_at_once(cli_here: Any, tmp_path: Path) -> None:
    path = support.write(tmp_path / "in", {"layers": PROBLEM}) / "layers.py"
    cli_here("bench", "adapt", str(path), "--to", str(tmp_path / "out"), "--allow-write", str(tmp_path))
    [baseline] = (tmp_path / "out").rglob("baseline_*.py")
    memory = [memory_files() for _ in range(3)]
    verifier = Verifier(memory)
    gc.collect()
    gc.disable()
    try:
        verifier.open(str(baseline), "default", "cpu", vars(ALL), 1, 1 << 20, 0.01)
        for worker in range(3):
            verifier.attach(worker)
        held = []
        for seed in (7, 8):
            verifier.params([0, 1, 2], seed)
            verifier.fill({"0": 1, "2": 1}, seed, "plain")
            bank: Any = verifier.banks[0]
            bank.both(1, "plain", bank.inputs(1, "plain"))
            for tensors in (bank.reference.params, bank.reference.wide):
                held += [weakref.ref(tensor) for tensor in tensors.values()]
        earlier, now = held[: len(held) // 2], held[len(held) // 2 :]
        assert not any(tensor() is not None for tensor in earlier)
        assert all(tensor() is not None for tensor in now)
        adapted: Any = verifier.spec.run.__self__  # type: ignore[attr-defined]
        assert len(adapted._modules) == 2  # in both precisions
    finally:
        gc.enable()
        for fd in itertools.chain.from_iterable(memory):
            os.close(fd)
