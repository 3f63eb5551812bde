"""Tools for jobs: look, wait, cancel, list, clean.

`aisp_mcp.jobs` runs the jobs. Start with `tools.py`.
"""
