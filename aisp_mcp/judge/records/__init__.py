"""The records of comparisons and runs: the judge returns them, the store keeps them, and every feature reads them.

Nothing here measures or decides. Start with `verdict.py`.
"""

from aisp_mcp.judge.records.measurement import (
    Clocks,
    Figures,
    Interval,
    Memory,
    Metric,
    Percentiles,
    Serving,
    Verification,
)
from aisp_mcp.judge.records.run import Failure, Run, Skip
from aisp_mcp.judge.records.verdict import NO_TIME, Comparison, Flag, PeakShare, Verdict

__all__ = [
    "NO_TIME",
    "Clocks",
    "Comparison",
    "Failure",
    "Figures",
    "Flag",
    "Interval",
    "Memory",
    "Metric",
    "PeakShare",
    "Percentiles",
    "Run",
    "Serving",
    "Skip",
    "Verdict",
    "Verification",
]
