"""Readers of profile files, one per format: Kineto, nsys, ncu, allocator snapshots.

Files are untrusted: size and time are limited, and nothing in them is executed. Start with `files.py`.
"""
