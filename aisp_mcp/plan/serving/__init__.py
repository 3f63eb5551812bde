"""Plans for serving a model: memory, speed, weight format and flags.

All figures are closed forms over the architecture and the data sheet. Start with `deployment.py`.
"""
