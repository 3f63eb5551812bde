"""Where and how isolated a program runs when it is treated like a worker: cores, environment, isolation level."""

from aisp_mcp.judge.parent.processes.placement import inside, measuring_cpus, usable_level, worker_env

__all__ = ["inside", "measuring_cpus", "usable_level", "worker_env"]
