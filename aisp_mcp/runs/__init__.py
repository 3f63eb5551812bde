"""Measure many pairs, keep the run, and work with stored runs: history, comparison, analysis, export.

The judge judges; nothing here changes a verdict. Start with `measure.py`.
"""
