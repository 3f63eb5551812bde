"""The registry as an MCP server, and its transport over standard input and output.

Only this folder and `front/http` import the MCP library. Start with `server.py`.
"""
