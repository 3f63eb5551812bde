"""Flame graphs and their differences as single HTML files.

A page fetches nothing. Start with `flame.py`.
"""
