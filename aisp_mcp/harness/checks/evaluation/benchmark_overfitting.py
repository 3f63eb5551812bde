"""Benchmark Overfitting.

What happens: The candidate is right on the usual distribution alone, or quick only where many calls come at once.
Why it lies: Users' data are different, and come one call at a time.
What we do: Adversarial inputs mixed in at random; calls by themselves must show the gain (together.py).
Limits: Few of the inputs are adversarial; on a GPU calls may save 4 to 8 µs together, with their host 15 % of a gain.
"""
