"""Checks of outputs: tolerance, positions, formats, quality, and the distribution of random ones.

A check sees tensors and the contract; it never sees a time. Start with `round_checker.py`.
"""
