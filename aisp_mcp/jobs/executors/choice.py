"""The executor that a name stands for."""

from __future__ import annotations

from aisp_mcp.jobs.executors.base import Executor


def elsewhere(name: str) -> Executor:
    """The executor of jobs on another machine: slurm, or ssh://[user@]host[:port]."""
    if name == "slurm":
        from aisp_mcp.jobs.executors.slurm import Slurm

        return Slurm()
    from aisp_mcp.jobs.executors.ssh import Ssh

    return Ssh(name)
