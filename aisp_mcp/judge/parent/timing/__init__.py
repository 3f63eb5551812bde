"""Time a pair: rounds, replicates and their overhead, on a CPU and on a GPU.

It records seconds and evidence, and does not interpret them. Start with `replicate.py`.
"""
