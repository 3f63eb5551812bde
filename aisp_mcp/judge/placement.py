"""Cores, precedence, environment and isolation level of a program that runs like a worker."""

from aisp_mcp.judge.parent.processes.confined import prefer
from aisp_mcp.judge.parent.processes.placement import inside, measuring_cpus, usable_level, watching, worker_env

__all__ = ["inside", "measuring_cpus", "prefer", "usable_level", "watching", "worker_env"]
