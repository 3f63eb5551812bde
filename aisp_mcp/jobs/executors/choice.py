"""The executor that a name stands for."""

from __future__ import annotations

from aisp_mcp.jobs.executors.base import Executor


def elsewhere(name: str) -> Executor:
    """The executor of jobs on another machine: slurm, kubernetes, or ssh://[user@]host[:port]."""
    if name == "slurm":
        from aisp_mcp.jobs.executors.slurm import Slurm

        return Slurm()
    if name == "kubernetes":
        from aisp_mcp.jobs.executors.kubernetes import Kubernetes

        return Kubernetes()
    from aisp_mcp.jobs.executors.ssh import Ssh

    return Ssh(name)
