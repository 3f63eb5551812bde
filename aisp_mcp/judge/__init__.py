"""Judge one comparison: from a baseline and a candidate file to a verdict.

Trusted and untrusted code never share a folder: `parent/` and `verifier/` are trusted, `worker/` runs in the
candidate's process, and `protocol/` contains everything that both use. Other features import the modules listed in
`__all__` and nothing else. Start with `comparison.py`.
"""

__all__ = [
    "attacks",
    "audit_log",
    "candidate_needs",
    "comparison",
    "correctness",
    "loading",
    "mutants",
    "native",
    "options",
    "pair",
    "placement",
    "presets",
    "programs",
    "ranks",
    "records",
    "sizes",
    "source_facts",
    "statistics",
    "verdict",
]
