"""Checks of outputs: guards and poison, and a checker for each kind of contract.

A check sees tensors and the contract; it never sees a time. Start with `round_checker.py`, then `contracts.py`.
"""
