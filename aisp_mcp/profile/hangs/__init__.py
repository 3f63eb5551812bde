"""Hung jobs: which rank waits for which, from flight recorder dumps of PyTorch and logs of NCCL.

It reports the content of the files, and never guesses why a rank is late. Start with `waiting.py`.
"""
