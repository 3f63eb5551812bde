"""What vendors state about GPUs, each figure with its source.

A name that is not listed has no row; nothing is taken from a similar one. Start with `load.py`.
"""
