"""Kernels and stored runs under the roofline.

Peaks come from the report or from a measurement on this machine, not from a table. Start with `kernel_roofline.py`.
"""
