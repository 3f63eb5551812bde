"""Judge two command lines as whole programs, in any language.

The programs are never trusted: each run is isolated and its outputs are compared. Start with `judge.py`.
"""
