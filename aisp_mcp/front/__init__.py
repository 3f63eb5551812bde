"""Front ends: MCP, HTTP, REST, the command line, the dashboard, the terminal view and the doctor.

They render the registry and never judge a result. Start with `mcp/server.py` or `cli/main.py`.
"""
