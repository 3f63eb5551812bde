"""Which altered baselines a target's contract accepts.

Nothing is timed. Start with `report.py`; `aisp_mcp/judge/mutants/` makes and judges the mutants.
"""
