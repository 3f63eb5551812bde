"""Compare two stored runs and triage one: what changed, what is suspect, what to run next.

Runs measured under different conditions are never called a regression. Start with `changes.py`.
"""
