"""Run one baseline or candidate as a plain program under a profiler or an energy counter.

Nothing here is timed, compared or judged. Start with `single.py`.
"""
