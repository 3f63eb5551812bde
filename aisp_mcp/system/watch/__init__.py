"""Watch the machine while something is measured: clocks, throttling, heat, power, neighbours.

It only reads. Start with `sampler.py`.
"""
