"""Hand the inputs of a round to a worker one call at a time, and take its outputs.

The next call's inputs are never visible before the previous call has answered. Start with `handoff_cpu.py`.
"""
