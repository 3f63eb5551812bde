"""Candidates of several ranks against the float64 reference of all of them, at the size of a CPU.

python ranked_agreement.py TARGET...: two gloo ranks run each program in turn. Prints problems by candidate as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agreement import MODES, ROOTS

from aisp_mcp.bench import DistributedBenchmark
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites.records import Target, Variant

RANKS = 2
Tensors = list[Any]


class Ranked:
    """One target of several ranks, in the process of one of them."""

    def __init__(self, target: Target, rank: int) -> None:
        from aisp_mcp.judge.protocol.module_loader import load_spec

        spec = load_spec(Path(target.path), f"small,ranks={RANKS}")
        assert isinstance(spec, DistributedBenchmark)
        self.spec, self.rank = spec, rank

    def rng(self, seed: int, mode: str) -> Any:
        from aisp_mcp.judge.protocol.draws.rng import CallRng

        return CallRng("cpu", seed, mode, secret_statistics=mode == "plain" and seed > 2)

    def outputs(self, path: str, modes: tuple[str, ...]) -> list[Tensors]:
        """This rank's outputs of a candidate, or of the baseline where the path is its own, for each mode."""
        from aisp_mcp.judge.protocol.module_loader import flatten, load_module

        static = self.spec.rank_params(self.rng(2, "plain"))[self.rank]
        run: Any = self.spec.run
        if not Path(path).name.startswith("baseline_"):
            module = load_module(Path(path), "aisp_candidate")
            run = module.run
            if prepare := getattr(module, "prepare", None):
                static = prepare(static, self.spec.rank_inputs(self.rng(3, "plain"))[self.rank])
        calls = (run(**self.spec.rank_inputs(self.rng(7, mode))[self.rank], **static) for mode in modes)
        return [[tensor.clone() for _, tensor in flatten(call)] for call in calls]

    def problems(self, rank_outputs: list[list[Tensors]], modes: tuple[str, ...]) -> Iterator[str]:
        """Faults of the outputs of all ranks, by rank and mode."""
        from aisp_mcp.judge.protocol.module_loader import flatten
        from aisp_mcp.judge.verifier.checks.tolerance import compare
        from aisp_mcp.judge.verifier.group import of_all_ranks
        from aisp_mcp.judge.verifier.reference import ReferenceEvaluator

        spec = of_all_ranks(self.spec, RANKS)
        reference = ReferenceEvaluator(spec, dict(spec.params(self.rng(2, "plain"))))
        for at, mode in enumerate(modes):
            base, truth = map(flatten, reference.both(dict(spec.inputs(self.rng(7, mode)))))
            outputs = [tensor for of_rank in rank_outputs for tensor in of_rank[at]]
            for (name, own), (_, right), out in zip(base, truth, outputs, strict=True):
                if (out.dtype, out.shape) != (own.dtype, own.shape):
                    yield f"{mode}: {name} is {out.dtype} {tuple(out.shape)}, not {own.dtype} {tuple(own.shape)}"
                elif wrong := compare(out, own, right, spec.tolerance)[1]:
                    yield f"{mode}: {name}: {wrong}"


def work(rank: int, found: list[tuple[Target, list[Variant]]], folder: Path, modes: tuple[str, ...]) -> None:
    """Run all programs as one rank; the first one compares and prints."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS)
    texts: dict[str, list[str]] = {}
    for target, variants in found:
        programs = {suites.full_name(target, variant): variant.path for variant in variants} | {
            f"{target.name}!": target.path
        }
        for name, path in programs.items():
            gathered: list[Any] = [None] * RANKS
            dist.all_gather_object(gathered, Ranked(target, rank).outputs(path, modes))
            if rank == 0:
                texts[name] = list(Ranked(target, rank).problems(gathered, modes))
    if rank == 0:
        print(json.dumps(texts))
    dist.barrier()
    dist.destroy_process_group()


def main(names: list[str]) -> None:
    modes = MODES if names[0] == "--all-modes" else MODES[:1]
    found = suites.resolve(ROOTS, names[len(modes) > 1 :])
    for name in ("torch.distributed", "aisp_mcp.judge.verifier.group"):
        importlib.import_module(name)  # once for both ranks
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        work(int(child == 0), found, Path(folder), modes)
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1:])
