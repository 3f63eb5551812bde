"""Result files of other benchmark tools: read, stored as measured elsewhere, compared, and listed over time.

Nothing here becomes a verdict: another tool's clock and conditions cannot be checked. Start with `reading.py`.
"""
