"""The parent's handles on other processes: start, place, stop and watch workers, and talk to the verifier.

Everything is read from outside, through the kernel; nothing that a worker reports about itself is trusted. Start with
`process.py`.
"""
