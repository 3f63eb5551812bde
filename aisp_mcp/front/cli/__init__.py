"""The command line `aisp`, generated from the registry.

It parses command lines and prints answers; it does not validate arguments or compute results. Start with `main.py`.
"""
