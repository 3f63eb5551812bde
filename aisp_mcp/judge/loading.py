"""Load benchmark files and draw their inputs as the judge does, for programs that other features run."""

from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.module_loader import (
    common_of,
    flatten,
    load_candidate,
    load_common,
    load_module,
    problem_files,
    problem_folder,
)

__all__ = [
    "CallRng",
    "common_of",
    "flatten",
    "load_candidate",
    "load_common",
    "load_module",
    "problem_files",
    "problem_folder",
]
