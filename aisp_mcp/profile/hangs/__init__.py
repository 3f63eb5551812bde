"""Jobs that stand still: which rank waits for which, from flight recorder dumps of PyTorch and logs of NCCL.

It reports what the files say, and never guesses why a rank is late. Start with `waiting.py`.
"""
