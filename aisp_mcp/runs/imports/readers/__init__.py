"""Readers of result files, one format family per file.

A reader never executes any part of a file and invents no number. Start with `source.py`.
"""
