"""Correctness of candidates over many sizes.

Nothing is timed. Start with `fuzz.py`.
"""
