"""The gate of a loop that tries, measures, and keeps or discards: one command, one exit code.

It runs the user's own programs as the user, and believes the numbers that they print. Start with `step.py`; the rule
that decides is in `decide.py`.
"""
