"""Sentences and pictures with which pages open, made from the results of tools.

Nothing is measured or judged here. Start with `traces.py`.
"""
