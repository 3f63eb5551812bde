"""Text and numbers for readers: formatting, rounding, escaping.

A missing value is a dash, never a zero. Start with `numbers.py`.
"""
