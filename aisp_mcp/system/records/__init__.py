"""Records that describe this machine.

No function here reads anything. Start with `device.py`.
"""
