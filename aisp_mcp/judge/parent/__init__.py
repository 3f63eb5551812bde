"""The trusted process that owns the clock, the order of rounds and the verdict.

It never imports a benchmark file or worker code; it knows its child processes only through the protocol. Start with
`session.py`.
"""
