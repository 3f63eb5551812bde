"""The parent's handles on other processes: start, place, freeze and watch workers, and talk to the verifier.

Everything is read from outside, through the kernel; nothing a worker says about itself is believed. Start with
`process.py`.
"""
