"""Energy of benchmark programs, measured with the GPU's own counter.

Idle power is subtracted and shown, and windows too short for the counter are refused. Start with `readings.py`.
"""
