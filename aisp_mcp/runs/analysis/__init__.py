"""Analyses of stored runs: metrics side by side, Pareto fronts, scaling laws, combinations, limits.

They use what was measured and extrapolate only where a fit says how far. Start with `variants.py`.
"""
