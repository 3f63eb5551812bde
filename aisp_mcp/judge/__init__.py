"""Judge one comparison: from a baseline and a candidate file to a verdict.

Trusted and untrusted code never share a folder: `parent/` and `verifier/` are trusted, `candidate/` contains all that
is imported in a candidate's process, and `protocol/` what both sides use. Other features import the modules listed in
`__all__` and nothing else. Start with `comparison.py`.
"""

__all__ = [
    "audit_log",
    "candidate",
    "candidate_needs",
    "comparison",
    "correctness",
    "distributed",
    "functions",
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
]
