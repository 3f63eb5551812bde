"""Opening sentences and pictures of pages, made from the results of tools.

Nothing is measured or judged here. Start with `traces.py`.
"""
