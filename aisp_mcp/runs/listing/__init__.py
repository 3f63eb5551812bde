"""Stored runs as a list, and the names, tags and notes that their users give them.

Nothing here measures or judges. Start with `tools.py`.
"""
