"""Run a program or a benchmark target under a profiler and keep scrubbed files.

Environment values, users and hosts never stay in what is kept. Start with `record.py`.
"""
