"""Measure many pairs, store the run, and work with stored runs: history, comparison, analysis, export.

Only the judge decides verdicts; nothing here changes one. Start with `measure.py`.
"""
