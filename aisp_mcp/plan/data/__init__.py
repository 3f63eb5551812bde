"""The planners' data: models, prices, formats, techniques, calibrations, each row with its source.

A name that is not listed has no row. Start with `tables.py`.
"""
