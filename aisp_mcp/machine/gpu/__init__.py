"""Tools about the GPUs as the driver sees them, and how they are connected.

A missing GPU is an answer, not an exception. Start with `tools.py`.
"""
