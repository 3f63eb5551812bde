"""Costs and savings of optimisations: prices, stored comparisons, published effects of techniques.

It never predicts a speed-up without a measurement. Start with `estimates.py`.
"""
