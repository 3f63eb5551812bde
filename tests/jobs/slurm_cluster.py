"""A two-node Slurm on this machine, for tests: its own folder, ports and daemons; root, and no systemd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from waiting import PATIENCE_S, until

from aisp_mcp.process import tree

INSTALL = "apt-get install -y --no-install-recommends slurm-wlm munge slurm-client"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
NODES = ("t1", "t2")


def missing() -> str | None:
    """The reason why no Slurm can be started here, with the command that helps; None if one can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}: {INSTALL}"
    return "a Slurm of one's own needs root" if os.geteuid() else None


class Cluster:
    """Two nodes with two CPUs and two pretended GPUs each; jobs are tracked by cgroup where that is writable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.munged: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._configure()
        self._munge()
        self.controller("-i")
        for node in NODES:
            self.run("slurmd", "-N", node)
        until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == "2")

    def stop(self) -> None:
        """End the daemons that were started here, each by its pid file."""
        self.ask("scancel", "--user=root")
        with contextlib.suppress(AssertionError):
            until(lambda: not self.ask("squeue", "-h"))
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld"):
            self.end(name)
        if self.munged is not None:
            self.munged.terminate()
            self.munged.wait(PATIENCE_S)

    def end(self, name: str) -> None:
        """End one daemon and wait for it."""
        file = self.folder / f"{name}.pid"
        if file.exists():
            pid = int(file.read_text())
            tree.kill([pid], signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                until(lambda: tree.start_time(pid) is None)
            tree.kill([pid])

    def controller(self, *words: str) -> None:
        """Start slurmctld; without -i it takes its state up again."""
        self.run("slurmctld", *words)
        until(lambda: "UP" in self.ask("scontrol", "ping"))

    def run(self, *words: str) -> None:
        """A command that must succeed. Its output goes to a file: a daemon must not hold a pipe open."""
        with open(self.folder / "commands.log", "a+b") as out:
            subprocess.run(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=True, timeout=30
            )
        return ""

    def ask(self, *words: str) -> str:
        """The output of a query; empty when it fails."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    def named(self, job_id: str) -> list[str]:
        """Slurm's ids of the submissions of one of our jobs, ended ones included."""
        return self.ask("squeue", "-h", "-t", "all", "-o", "%i", f"--name=aisp-{job_id}").split()

    def release(self, number: str) -> bool:
        """Let a requeued job start now: Slurm holds it back for minutes. Always true."""
        words = self.ask("scontrol", "show", "job", "-o", number).split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        late = fields.get("EligibleTime", "") > time.strftime("%Y-%m-%dT%H:%M:%S")
        if fields.get("JobState") == "PENDING" and late:
            self.ask("scontrol", "update", f"jobid={number}", "StartTime=now")
        return True

    def _munge(self) -> None:
        if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
            return
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
        words = ["munged", "-F", "-f", f"--key-file={key}", "--log-file=/dev/null", f"--seed-file={self.folder}/seed"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.munged = subprocess.Popen([*words, f"--pid-file={self.folder}/munged.pid"], **quiet)
        until(lambda: subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0)

    def _configure(self) -> None:
        host, here = socket.gethostname().split(".")[0], self.folder
        cgroup = Path("/sys/fs/cgroup/freezer").is_dir()
        ports = free_ports(3)
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 Gres=gpu:toy:2"
            for node, port in zip(NODES, ports[1:], strict=True)
        ]
        self._devices()
        (here / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nIgnoreSystemd=yes\n"
        )
        lines = {
            "ClusterName": "toy",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "StateSaveLocation": here / "state",
            "SlurmdSpoolDir": here / "spool-%n",
            "SlurmctldPidFile": here / "slurmctld.pid",
            "SlurmdPidFile": here / "slurmd-%n.pid",
            "SlurmctldLogFile": here / "slurmctld.log",
            "SlurmdLogFile": here / "slurmd-%n.log",
            "ProctrackType": "proctrack/cgroup" if cgroup else "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "DefMemPerCPU": 500,
            "SchedulerParameters": "bf_interval=1,sched_interval=1,batch_sched_delay=0",
            "ReturnToService": 1,
            "KillWait": 5,
            "MaxArraySize": 3,
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "GresTypes": "gpu",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": here / "jobcomp.txt",
            "AccountingStorageType": "accounting_storage/none",
        }
        parts = [f"{key}={value}" for key, value in lines.items()]
        shared = f"Nodes={','.join(NODES)} MaxTime=60 State=UP"
        parts += [*nodes, f"PartitionName=main {shared} Default=YES PriorityTier=1 PreemptMode=REQUEUE"]
        parts += [f"PartitionName=urgent {shared} PriorityTier=9 PreemptMode=OFF"]
        self.conf.write_text("\n".join(parts) + "\n")

    def _devices(self) -> None:
        """Spool folders and pretended GPUs: Slurm wants character devices; these have the numbers of /dev/null."""
        here = self.folder
        for node in NODES:
            (here / f"spool-{node}").mkdir()
            for number in (0, 1):
                os.mknod(here / f"{node}-gpu{number}", 0o020666, os.makedev(1, 3))
        (here / "state").mkdir()
        (here / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu Type=toy File={here}/{node}-gpu[0-1]\n" for node in NODES)
        )


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
