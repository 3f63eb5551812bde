"""Tools for jobs: look, wait, cancel, list, clean.

Running them is the business of `aisp_mcp.jobs`. Start with `tools.py`.
"""
