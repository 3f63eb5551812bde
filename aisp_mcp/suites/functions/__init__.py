"""A pair of benchmark files to start with, for code of your own. Start with `tools.py`."""
