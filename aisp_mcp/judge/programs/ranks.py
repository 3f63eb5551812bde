"""The ranks of a baseline or candidate as plain programs. A profiler watches rank 0; the others run alongside it.

python -m aisp_mcp.judge.programs.ranks RANK SEED JSON: one of the others. All draw the same inputs, and each uses its
own. A profiler that follows child processes sees all ranks; only rank 0 starts and stops recording.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.bench import DistributedBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import distributed
from aisp_mcp.judge.candidate.ranks import join
from aisp_mcp.judge.parent.processes.group import COLLECTIVE_S
from aisp_mcp.judge.programs import single
from aisp_mcp.judge.programs.single import CALLS, WARMUP
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.module_loader import entry, load_spec
from aisp_mcp.judge.verifier.group import missing_devices
from aisp_mcp.judge.verifier.requirements import missing_needs
from aisp_mcp.process.tree import PR_SET_PDEATHSIG, prctl

END_S = 2 * COLLECTIVE_S  # the others end when rank 0 does, or when their collective raises


@dataclass(frozen=True)
class Program:
    """One program of a pair, its size and device. candidate: None for the baseline. threads: of each rank."""

    baseline: str
    candidate: str | None
    size: str
    device: str
    threads: int
    ranks: int


def play(baseline: str, candidate: str | None = None, *, size: str, device: str, threads: int) -> None:
    """Run the ranks of the candidate, or of the baseline without one; this process is rank 0.

    Writes calls.json in the working folder after the last call.

    Raises BenchmarkError NEEDS, RAISED if another rank failed, and whatever rank 0 raises.
    """
    ranks = distributed.ranks(Path(baseline), size)
    threads = int(os.environ.get("OMP_NUM_THREADS", threads))  # the caller's setting
    program = Program(baseline, candidate, size, device, threads, ranks)
    spec = load_spec(Path(baseline), size)
    lacks = missing_needs(spec.needs, program.ranks, len(os.sched_getaffinity(0)))
    if lacking := lacks + missing_devices(program.ranks, program.device):
        raise BenchmarkError("NEEDS", f"This benchmark needs {', '.join(lacking)}.")
    command = [sys.executable, "-P", "-m", __spec__.name]
    seed = os.urandom(6).hex()
    words = [seed, json.dumps(asdict(program))]
    others = [subprocess.Popen([*command, str(rank), *words]) for rank in range(1, program.ranks)]
    try:
        input_count = _rank(program, 0, seed)
        failed = [rank for rank, process in enumerate(others, 1) if process.wait(END_S)]
    except subprocess.TimeoutExpired:
        failed = [rank for rank, process in enumerate(others, 1) if process.poll() is None]
    finally:
        for process in others:
            process.kill()
            process.wait()
    if failed:
        raise BenchmarkError("RAISED", f"Rank {failed[0]} failed or did not end.")
    Path("calls.json").write_text(json.dumps({"calls": CALLS, "inputs": input_count, "ranks": ranks}))


def _rank(program: Program, rank: int, seed: str) -> int:
    """Run one rank's calls. Returns the number of its inputs."""
    first, spec = int(seed, 16), load_spec(Path(program.baseline), program.size)
    assert isinstance(spec, DistributedBenchmark)
    torch = CallRng(program.device, first).torch
    torch.set_num_threads(program.threads)
    everywhere = {"ranks": program.ranks, "here": program.ranks, "meets": None, "collective_s": COLLECTIVE_S}
    join({"rank": rank, "number": rank, **everywhere}, program.device, os.getcwd())
    params = spec.rank_params(CallRng(program.device, first, secret_statistics=False))[rank]

    def drawn(call: int) -> list[dict[str, Any]]:
        return spec.rank_inputs(CallRng(program.device, first + 1 + call))

    # The same number on each rank, since inputs of one call belong together.
    most = min(
        CALLS, *(single.fit(program.device, inputs_of_a_rank) for inputs_of_a_rank in map(single.stored, drawn(0)))
    )
    inputs = [single.stored(drawn(call)[rank]) for call in range(max(most, 1))]
    setup = single.setup_of(program.baseline, program.candidate, program.size)
    run = entry(setup, dict(params), single.copied(inputs[0]))
    meet = torch.distributed.barrier
    single.loop(torch, program.device, run, inputs, CALLS, WARMUP, meet, record=rank == 0)
    meet()
    return len(inputs)


def main() -> None:
    """Run one of the other ranks, which ends when rank 0 does."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _rank(Program(**json.loads(sys.argv[3])), int(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
