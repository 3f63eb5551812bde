"""Two functions of the caller as a pair of benchmark files. Start with `pair.py`."""
