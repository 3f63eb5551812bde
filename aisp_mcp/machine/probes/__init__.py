"""Measure the machine itself: arithmetic, memory, links, collectives, network and disk, each against its expected rate.

A probe runs in a child process and never in the server. Start with `probe_runner.py`.
"""
