"""From measured replicates to a verdict in three steps: `estimate.py`, `bound.py`, `verdict.py`.

All functions are pure; none reads a clock, a file or a process. Start with `conclude.py`, which calls the steps.
"""
