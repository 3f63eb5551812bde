"""From measured replicates to a verdict: estimates, then bounds, then flags, then the word.

All functions are pure; none reads a clock, a file or a process. Start with `verdict.py`.
"""
