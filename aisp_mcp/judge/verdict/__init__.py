"""From measured replicates to a verdict: `estimate.py`, `bound.py`, `verdict.py`, and their words in `wording.py`.

All functions are pure; none reads a clock, a file or a process. Start with `conclude.py`, which calls the steps.
"""
