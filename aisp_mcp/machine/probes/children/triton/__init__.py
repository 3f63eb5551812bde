"""Kernels that no library offers.

They are compiled in a probe's child process only. Start with `kernels.py`.
"""
