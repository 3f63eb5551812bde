"""The other nodes of a Slurm job, with a stand-in for scontrol that answers as Slurm 22.05 does."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisp_mcp.errors import Unavailable
from aisp_mcp.system import slurm

SCONTROL = """#!/bin/sh
case "$*" in
    "show hostnames gpu[1-3]") printf 'gpu1\\ngpu2\\ngpu3\\n' ;;
    "show node -o gpu2") echo "NodeName=gpu2 Arch=x86_64 NodeAddr=10.0.0.2 NodeHostName=gpu2 State=ALLOCATED" ;;
    *) exit 1 ;;
esac
"""
JOB = {"SLURM_JOB_NODELIST": "gpu[1-3]", "SLURM_JOB_CPUS_PER_NODE": "8(x2),4", "SLURMD_NODENAME": "gpu2"}


@pytest.fixture(autouse=True)
def _scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text(SCONTROL)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


def test_each_other_node_is_a_step_with_all_its_cpus() -> None:
    nodes, address = slurm.other_nodes(3, JOB)
    assert address == "10.0.0.2"
    assert [(name, words[0], words[-2:]) for name, words in nodes] == [
        ("gpu1", "srun", ["--cpus-per-task=8", "--nodelist=gpu1"]),
        ("gpu3", "srun", ["--cpus-per-task=4", "--nodelist=gpu3"]),
    ]
    assert [name for name, _ in slurm.other_nodes(2, JOB)[0]] == ["gpu1"]


@pytest.mark.parametrize(
    ("count", "environ"),
    [(4, JOB), (2, {}), (2, {**JOB, "SLURMD_NODENAME": ""}), (2, {**JOB, "SLURMD_NODENAME": "login"})],
    ids=["too few", "no job", "not on a node", "on another machine"],
)
def test_where_there_are_no_such_nodes_it_is_said(count: int, environ: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as refused:
        slurm.other_nodes(count, environ)
    assert refused.value.code == "NO_ALLOCATION"
