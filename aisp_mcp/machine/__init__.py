"""Describe this machine, its problems, and the rates it can reach: facts, findings, probes, data sheets.

It never changes a setting of the machine. Start with `facts.py`.
"""
