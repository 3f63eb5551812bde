"""Operators of a trace as benchmark targets: recorded shapes, strides and types with fresh values.

No value of the traced program is used. Start with `targets.py`.
"""
