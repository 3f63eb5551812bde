"""Kernels that no library offers.

They are compiled only in a probe's child process. Start with `kernels.py`.
"""
