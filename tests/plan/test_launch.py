"""Printed commands do what they say: run by a shell, with stand-ins for what this machine lacks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.plan.cluster import launch, slurm

JOB = launch.of_command(["train it.py", "--lr", "1e-3 x"], 2, 3)

# Stand-ins: srun runs its command once per task, scontrol names the nodes, torchrun writes down its words.
STANDINS = {
    "srun": """#!/bin/bash
while [[ "$1" == --* ]]; do [[ "$1" == --ntasks=* ]] && n=${1#*=}; shift; done
for ((rank = 0; rank < n; rank++)); do SLURM_PROCID=$rank "$@" & done; wait
""",
    "scontrol": """#!/bin/bash
[[ "$*" == "show hostnames n[1-2]" ]] && printf 'n1\\nn2\\n'
[[ "$*" == "show node n1" ]] && printf 'NodeName=n1\\n   NodeAddr=10.0.0.1 NodeHostName=n1\\n'
""",
    "torchrun": f"""#!{sys.executable}
import json, os, sys
open(os.environ["OUT"] + "/" + next((w[-1] for w in sys.argv if w.startswith("--node-rank")), "x"), "w").write(
    json.dumps(sys.argv[1:]))
""",
}


@pytest.fixture
def stage(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH begins with the stand-ins."""
    tools, out = tmp_path / "bin", tmp_path / "out"
    tools.mkdir()
    out.mkdir()
    for name, text in STANDINS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OUT": str(out), "SLURM_JOB_NODELIST": "n[1-2]"}


def words(stage: dict[str, str], rank: str) -> list[str]:
    texts: list[str] = json.loads((Path(stage["OUT"]) / rank).read_text())
    return texts


def expected(rank: int, head: str) -> list[str]:
    where = ["--nnodes=2", "--nproc-per-node=3", f"--node-rank={rank}", f"--master-addr={head}", "--master-port=29500"]
    return [*where, "train it.py", "--lr", "1e-3 x"]


def test_srun_starts_one_torchrun_per_node_with_the_task_as_rank(stage: dict[str, str]) -> None:
    subprocess.run(["bash", "-c", launch.srun(JOB).text], env=stage, check=True, timeout=50)
    assert [words(stage, str(rank)) for rank in (0, 1)] == [expected(0, "10.0.0.1"), expected(1, "10.0.0.1")]


def test_a_batch_script_runs_and_its_directives_come_first(stage: dict[str, str], tmp_path: Path) -> None:
    text = slurm.batch_script(
        JOB, slurm.BatchResources(partition="gpu", account="lab", minutes=1501), [("NCCL_DEBUG", "WARN")]
    )
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert lines[1 : 1 + len(directives)] == directives
    for wanted in ("--time=1-01:01:00", "--gpus-per-node=3", "--nodes=2", "--partition=gpu", "--account=lab"):
        assert f"#SBATCH {wanted}" in directives
    assert len(lines) <= 40
    file = tmp_path / "job.sbatch"
    file.write_text(text)
    subprocess.run(["bash", str(file)], env=stage, check=True, timeout=50)
    assert words(stage, "1") == expected(1, "10.0.0.1")


def test_torchrun_reads_rank_and_head_from_the_environment(stage: dict[str, str]) -> None:
    planned = launch.torchrun(JOB)
    assert set(planned.needs) == {"MASTER_ADDR", "NODE_RANK"}
    env = {**stage, "MASTER_ADDR": "a.b", "NODE_RANK": "1"}
    subprocess.run(["bash", "-c", planned.text], env=env, check=True, timeout=50)
    assert words(stage, "1") == expected(1, "a.b")


@pytest.mark.slow
def test_two_real_torchruns_meet_and_agree_on_ranks(tmp_path: Path) -> None:
    script = tmp_path / "say.py"
    script.write_text(
        "import os, sys\nimport torch.distributed as d\nimport torch\nd.init_process_group('gloo')\n"
        "x = torch.ones(1); d.all_reduce(x)\n"
        f"open({str(tmp_path)!r} + '/' + os.environ['RANK'], 'w').write(f\"{{x.item():.0f}} {{sys.argv[1]}}\")\n"
    )
    line = launch.torchrun(launch.of_command([str(script), "a b"], 2, 1)).text
    environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    started = [subprocess.Popen(["bash", "-c", line], env={**environ, "NODE_RANK": str(rank)}) for rank in (0, 1)]
    assert [process.wait(timeout=55) for process in started] == [0, 0]
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["2 a b", "2 a b"]


def test_torchrun_parses_the_line() -> None:
    run = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
    line = launch.torchrun(JOB).text.replace('"$NODE_RANK"', "1").replace('"$MASTER_ADDR"', "n1")
    parsed = run.get_args_parser().parse_args(shlex.split(line)[1:])
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.node_rank, parsed.master_addr) == ("2", "3", 1, "n1")
    assert (parsed.training_script, parsed.training_script_args) == ("train it.py", ["--lr", "1e-3 x"])


def test_accelerate_accepts_the_line() -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from accelerate.commands.launch import launch_command_parser

    line = launch.accelerate(JOB).text.replace('"$NODE_RANK"', "1").replace('"$MASTER_ADDR"', "n1")
    parsed = launch_command_parser().parse_args(shlex.split(line)[2:])
    assert (parsed.num_processes, parsed.num_machines, parsed.machine_rank) == (6, 2, 1)
    assert (parsed.training_script, parsed.training_script_args) == ("train it.py", ["--lr", "1e-3 x"])


def test_kubectl_reads_the_manifest_as_a_service_and_an_indexed_job(tmp_path: Path) -> None:
    text = launch.kubernetes(JOB).text
    service, job = json.loads(text)["items"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert job["spec"]["completionMode"] == "Indexed"
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 3}
    # A pod of an Indexed Job is called NAME-INDEX and found under the subdomain of the headless service.
    assert (
        f"--master-addr={job['metadata']['name']}-0.{service['metadata']['name']}" in pod["containers"][0]["command"][2]
    )
    assert pod["subdomain"] == service["metadata"]["name"]
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    file = tmp_path / "job.json"
    file.write_text(text)
    command = [kubectl, "label", "--local", "-f", str(file), "checked=yes", "-o", "name"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.split() == ["service/train-it", "job.batch/train-it"]


def test_names_are_dns_labels() -> None:
    assert launch.of_command(["/a/b/My_Train.v2.py"], 1, 1).name == "my-train-v2"
    assert launch.of_command(["9.py"], 1, 1).name == "job-9"
    assert launch.of_command(["___.py"], 1, 1).name == "job"


def test_a_leading_python_is_not_started_twice(cli_here: Any) -> None:
    for start in ([], ["python"], ["python3.11", "-u"]):
        done = cli_here("launch", "plan", "--gpus", "4", "--json", "--", *start, "train.py", "--lr", "1")
        launches = json.loads(done.stdout)["result"]["answer"]["launches"]
        assert launches[0]["text"] == "torchrun --standalone --nproc-per-node=4 train.py --lr 1"
        assert not any("python" in launch["text"] for launch in launches)
    done = cli_here("launch", "plan", "--json", "--", "python", "-m", "package.train")
    launches = json.loads(done.stdout)["result"]["answer"]["launches"]
    assert launches[0]["text"] == "torchrun --standalone --nproc-per-node=1 -m package.train"


def test_options_that_went_to_the_script_are_named(cli_here: Any) -> None:
    done = cli_here("cluster", "slurm", "train.py", "--lr", "1", "--nodes", "2", "--gpus=4")
    assert "train.py itself gets --nodes and --gpus=4" in done.stdout
    assert "itself gets" not in cli_here("cluster", "slurm", "--nodes", "2", "--", "train.py", "--lr", "1").stdout


def test_nccl_on_a_described_topology(cli_here: Any) -> None:
    words = ["--nodes", "4", "--fabric", "ib-400x8", "--nvlink", "900", "--sizes-mb", "1000", "--json"]
    answer = json.loads(cli_here("distributed", "nccl", *words).stdout)["result"]["answer"]
    rows = {row["collective"]: row for row in answer["times"]}
    # 32 ranks: 2 x 31/32 of 1 GB over the slower of 76 to 96 % of 450 GB/s and 92 % of eight adapters of 50 GB/s, after
    # 130 us in which a collective between nodes starts and ramps up.
    assert rows["all_reduce"]["seconds"] == pytest.approx(2 * 31 / 32 * 1e9 / 368e9 + 1.3e-4, rel=0.001)
    # Every pair of nodes meets at one adapter: 24 of 32 parts leave over 92 % of 50 GB/s.
    assert rows["all_to_all"]["seconds"] == pytest.approx(24 / 32 * 1e9 / 46e9, rel=0.02)
    assert rows["all_reduce"]["p10"] < rows["all_reduce"]["seconds"] < rows["all_reduce"]["p90"]
    rack = ["--nvlink", "1800", "--gpus-per-node", "72", "--sizes-mb", "8590", "--json"]
    answer = json.loads(cli_here("distributed", "nccl", *rack).stdout)["result"]["answer"]
    assert answer["times"][0]["p10"] < 20.3e-3 < answer["times"][0]["p90"]  # one NVL72, as published
    slow = json.loads(cli_here("distributed", "nccl", "--nodes", "4", "--fabric", "eth-100x1", "--json").stdout)
    assert [row["name"] for row in slow["result"]["answer"]["variables"]] == ["NCCL_IB_DISABLE"]
