"""Two functions of your own as a pair: no suite, no class, the inputs described in one line of text.

Functions and inputs are read as text and never run in this process. Start with `pair.py`.
"""
