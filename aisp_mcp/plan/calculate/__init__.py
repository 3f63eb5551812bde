"""Formulas that practitioners evaluate by hand, each with its numbers.

The formulas are data (plan/data/formulas.yaml), and each value is computed from the printed formula. Nothing is
measured or calibrated here. Start with `formulas.py`.
"""
