"""Readers of profile files, one per format: Kineto, nsys, ncu, allocator snapshots.

A file is data from a stranger: it is bounded in size and time, and nothing in it is executed. Start with `files.py`.
"""
