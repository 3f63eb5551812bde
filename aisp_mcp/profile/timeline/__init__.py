"""Find from events where the time went: exact unions of intervals, idle time and its causes, exposed communication.

All arithmetic is on integer nanoseconds. Start with `summarize.py`.
"""
