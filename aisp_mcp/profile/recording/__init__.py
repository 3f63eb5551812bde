"""Run a program or a benchmark target under a profiler and store scrubbed files.

Environment values, users and hosts are never stored. Start with `record.py`.
"""
