"""Flags of torchrun on the command line: their meaning on one machine, and the refusal of all else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.front.cli.launch_flags import translate
from aisp_mcp.judge import distributed

BASELINE = '''"""A sum over ranks."""
import torch.distributed as dist
from aisp_mcp.bench import DistributedBenchmark

class Total(DistributedBenchmark):
    n = 8
    def rank_inputs(self, rng):
        return [{"x": rng.randn(self.n)} for _ in range(self.ranks)]
    def run(self, x):
        dist.all_reduce(x)
        return x
    def rank_reference(self, ranks):
        return [sum(one["x"] for one in ranks)] * len(ranks)
'''


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("--targets ch04 --launch-via torchrun --nproc-per-node 4", "--targets ch04 --size ranks=4"),
        ("--nproc_per_node=2 --nnodes 1 ch04", "--size ranks=2 ch04"),
        ("--rdzv-backend c10d --rdzv-endpoint localhost:29500 --json", "--json"),
        ("--preset quick -- --nnodes 2", "--preset quick -- --nnodes 2"),
    ],
)
def test_what_they_mean_on_one_machine(words: str, meaning: str) -> None:
    assert translate(words.split()) == meaning.split()


def test_arguments_of_one_target_are_its_sizes() -> None:
    arguments = translate(["--target-extra-arg", "labs/train_distributed:ddp=--rows 64 --class-count=8 --fused"])
    target = "labs/train_distributed:ddp"
    assert arguments == [
        "--size",
        f"{target}:rows=64",
        "--size",
        f"{target}:class_count=8",
        "--size",
        f"{target}:fused=1",
    ]


def test_variables_go_to_ranks_and_devices_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["--torchrun-env", "NCCL_ALGO=Ring", "--torchrun-env=CUDA_VISIBLE_DEVICES=1,0"]
    assert translate(words) == ["--rank-env", "NCCL_ALGO=Ring"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,0"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("LD_PRELOAD=/tmp/x.so", "see no variable LD_PRELOAD"),
        ("RANK=1", "harness sets RANK"),
        ("GLOO_SOCKET_IFNAME=eth0", "harness sets GLOO_SOCKET_IFNAME"),
        ("OMP_NUM_THREADS=many", "not a number of threads"),
        ("NCCL_DEBUG", "not a variable with a value"),
    ],
)
def test_other_variables_are_refused_by_name(variable: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        distributed.read(["NCCL_ALGO=Ring", variable])
    assert (refused.value.code, bool(refused.value.hint)) == ("BAD_RANK_ENV", True)


def test_a_variable_is_refused_before_anything_is_started(cli_here: Any) -> None:
    done = cli_here("bench", "run", "--targets", "ch04", "--torchrun-env", "LD_PRELOAD=/tmp/x.so", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "BAD_RANK_ENV"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nnodes 2", "Only Slurm jobs"),
        ("--launch-via mpirun", "cannot start ranks"),
        ("--rdzv-endpoint head:29500", "provides their rendezvous"),
        ("--executor slurm --nnodes 2 --rdzv-endpoint head:29500", "provides their rendezvous"),
        ("--executor slurm --nnodes 1:2", "Only Slurm jobs"),
        ("--rdzv-backend etcd", "Unknown rendezvous backend"),
        ("--nproc-per-node auto", "not a number"),
        ("--torchrun-env CUDA_VISIBLE_DEVICES=$(id)", "is not a list of devices"),
        ("--target-extra-arg T=compile", "not a target with flags"),
        ("--nnodes", "needs a value"),
    ],
)
def test_what_one_machine_cannot_do_is_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        translate(words.split())
    assert refused.value.hint


def test_more_nodes_than_one_name_the_cluster(cli_here: Any) -> None:
    done = cli_here("bench", "run", "--targets", "ch04", "--launch-via", "torchrun", "--nnodes", "2")
    assert done.returncode == 2
    assert "BAD_LAUNCH" in done.stderr
    assert "--executor slurm" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--executor slurm --nnodes 2 --nproc-per-node 3", "--executor slurm --nodes 2 --size ranks=6"),
        ("--nproc-per-node=3 --executor=slurm --nodes=2", "--size ranks=6 --executor=slurm --nodes=2"),
        ("--executor slurm --nnodes 1 --nproc-per-node 3", "--executor slurm --size ranks=3"),
    ],
)
def test_on_slurm_they_ask_for_nodes_and_for_ranks_on_each(words: str, meant: str) -> None:
    assert translate(words.split()) == meant.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [("--nodes 2", "in a Slurm job only"), ("--executor slurm --nodes 2 --gpus 1", "NCCL across nodes is untested")],
)
def test_nodes_that_ranks_cannot_span_are_refused_before_a_job_is_submitted(
    cli_here: Any, words: str, message: str
) -> None:
    done = cli_here("bench", "run", "--targets", "ch04:allreduce_buckets", *words.split(), "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["code"], message in error["message"]) == ("RANKS_ON_ONE_NODE", True)


def test_more_ranks_than_cores_are_skipped_by_name(cli_here: Any, tmp_path: Path) -> None:
    folder = tmp_path / "suite" / "ch90"
    folder.mkdir(parents=True)
    (folder / "baseline_total.py").write_text(BASELINE)
    (folder / "optimized_total.py").write_text('"""The same."""\n\ndef run(x):\n    return x\n')
    words = ("--bench-root", str(tmp_path / "suite"), "--targets", "ch90", "--nproc-per-node", "64", "--json")
    done = cli_here("bench", "run", *words)
    [skipped] = json.loads(done.stdout)["result"]["skipped"]
    assert skipped["missing"].startswith("64 cores for 64 ranks, found ")
