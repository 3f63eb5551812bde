"""Two functions inside their user's own program or step: does a gain that was measured alone arrive there?

`swapping.py` runs in the program and puts a function in place, `stepping.py` repeats a step, `measuring.py` runs the
program in turns; the rule is `aisp_mcp.judge.verdict.endtoend`.
"""
