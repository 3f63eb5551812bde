"""What this machine is, what is wrong with it, and what it can reach: facts, findings, probes, data sheets.

It never changes a setting of the machine. Start with `facts.py`.
"""
