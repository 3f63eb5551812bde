"""A verdict with its evidence as one signed file, and the check of such a file on any machine.

Verification needs neither torch nor the machine that measured. Start with `bundles.py`.
"""
