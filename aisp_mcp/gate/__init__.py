"""The performance gate: measure the candidates of two commits interleaved in one job, and decide whether the change
may pass.

It does not judge pairs itself; the judge does. Start with `gate.py`; the conditions that fail a change are in
`policy.py`.
"""
