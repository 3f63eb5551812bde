"""Readers of result files, one format family a file.

A reader never executes anything of a file and invents no number. Start with `source.py`.
"""
