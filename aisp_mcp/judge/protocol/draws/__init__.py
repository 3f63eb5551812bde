"""Random inputs, drawn alike in the verifier and by programs that run a pair by themselves. Start with `rng.py`."""
