"""The pytest plugin: `pytest --aisp` judges the benchmarks of a test suite, with pytest-benchmark's calls.

It runs the tests as they stand in processes of its own and times them from outside; it isolates nothing, so it is for
your own code. Start with `plugin.py`.
"""
