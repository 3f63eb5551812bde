"""Judge one comparison: from a baseline and a candidate file to a verdict.

Trusted and untrusted code never share a folder: `parent/` and `verifier/` are trusted, `candidate/` contains all that
is imported in a candidate's process, and `protocol/` what both sides use. Other features import the modules listed in
`__all__` and nothing else. Start with `comparison.py`.

As a library, it compares two functions:

    from aisp_mcp.judge import compare

    print(compare("slow.py:f", "fast.py:f", inputs="x=randn(1000)"))
"""

from typing import Any

__all__ = [
    "answers",
    "audit_log",
    "candidate",
    "candidate_needs",
    "compare",
    "comparison",
    "correctness",
    "distributed",
    "functions",
    "lease",
    "library",
    "loading",
    "mutants",
    "native",
    "options",
    "pair",
    "placement",
    "presets",
    "programs",
    "records",
    "source_facts",
    "statistics",
    "verdict",
    "warm",
]


def __getattr__(name: str) -> Any:
    """compare(), loaded when it is asked for: this package is imported in each candidate's process, too."""
    if name == "compare":
        from aisp_mcp.judge.library import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
