"""The trusted process that draws inputs, computes the reference and compares outputs.

It loads the baseline file and never a candidate; its seeds reach no worker. Start with `main.py`.
"""
