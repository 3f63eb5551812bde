"""Vendors' figures for GPUs, each with its source.

A name that is not listed has no row; nothing is taken from a similar one. Start with `load.py`.
"""
