"""The trusted process that owns the clock, the order of rounds and the verdict.

It never imports a benchmark file or worker code; it knows its children by the protocol alone. Start with `session.py`.
"""
