"""Cores, environment and isolation level of a program that runs like a worker."""

from aisp_mcp.judge.parent.processes.placement import inside, measuring_cpus, usable_level, worker_env

__all__ = ["inside", "measuring_cpus", "usable_level", "worker_env"]
