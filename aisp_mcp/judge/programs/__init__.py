"""One baseline or candidate as a plain program, for a profiler or an energy counter to watch.

Nothing here is timed, compared or judged. Start with `single.py`.
"""
