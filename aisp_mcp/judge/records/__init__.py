"""The records of comparisons: the judge returns them, the store keeps them in runs, and every feature reads them.

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
from aisp_mcp.judge.records.verdict import CANDIDATE_NEEDS, NO_TIME, Comparison, Flag, PeakShare, Skip, Verdict

__all__ = [
    "CANDIDATE_NEEDS",
    "NO_TIME",
    "Clocks",
    "Comparison",
    "Figures",
    "Flag",
    "Interval",
    "Memory",
    "Metric",
    "PeakShare",
    "Percentiles",
    "Serving",
    "Skip",
    "Verdict",
    "Verification",
]
