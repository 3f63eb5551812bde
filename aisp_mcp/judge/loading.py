"""Load the files of a benchmark as the judge does: for programs that other features let run beside nothing else."""

from aisp_mcp.judge.protocol.module_loader import common_of, load_candidate, load_common, load_module

__all__ = ["common_of", "load_candidate", "load_common", "load_module"]
