"""Named problems, found by small deterministic rules over a profile.

One function is one rule; a rule without data abstains. Start with `engine.py`.
"""
