"""Formulas that practitioners evaluate by hand, each with its numbers.

The formulas are data (plan/data/formulas.yaml), and a value is what its printed formula gives. Nothing is measured or
calibrated here. Start with `formulas.py`.
"""
