"""Plans for training on many GPUs: layouts that fit, time of a step, scaling.

All figures are closed forms; `measure.py` compares one with this machine. Start with `distributed.py`.
"""
