"""Records of what this machine is.

No function here reads anything. Start with `device.py`.
"""
