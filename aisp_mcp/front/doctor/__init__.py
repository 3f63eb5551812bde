"""`aisp doctor`: check that the server starts and that the MCP clients on this machine are configured for it.

Start with `command.py`.
"""
