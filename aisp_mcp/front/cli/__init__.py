"""The command line `aisp`, rendered from the registry.

It parses words and prints answers; it never validates arguments or computes results. Start with `main.py`.
"""
