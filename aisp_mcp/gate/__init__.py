"""The performance gate: measure the candidates of two commits interleaved in one job, and decide whether the change
may pass.

It never judges a pair itself; the judge does. Start with `gate.py`; what fails a change is in `policy.py`.
"""
