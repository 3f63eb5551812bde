"""Benchmark Overfitting.

What happens: The candidate is right on the usual distribution alone.
Why it lies: Users' data are different.
What we do: Adversarial inputs mixed in at random.
Limits: One kind of adversarial input per replicate is drawn; few replicates may miss the one that tells.
"""
