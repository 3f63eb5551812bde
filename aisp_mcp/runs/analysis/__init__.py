"""Analyses of stored runs: metrics side by side, Pareto fronts, scaling laws, combinations, limits.

They use measurements, and extrapolate only as far as a fit allows. Start with `variants.py`.
"""
