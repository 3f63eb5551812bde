"""Load benchmark files as the judge does, for programs that other features run."""

from aisp_mcp.judge.protocol.module_loader import common_of, flatten, load_candidate, load_common, load_module

__all__ = ["common_of", "flatten", "load_candidate", "load_common", "load_module"]
