"""Two functions judged on all the shapes of a workload, by the time that each shape takes there.

`reading.py` reads workloads, `measuring.py` measures them; the rule is `aisp_mcp.judge.verdict.workload`.
"""
