"""Processes with loaded libraries that outlive a job, for the supervisor that starts them."""

from aisp_mcp.judge.parent.processes.forked import start_asked_for

__all__ = ["start_asked_for"]
