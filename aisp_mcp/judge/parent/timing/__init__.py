"""Time a pair: rounds, replicates and what they cost, on a CPU and on a GPU.

It records seconds and evidence; it never decides what they mean. Start with `replicate.py`.
"""
