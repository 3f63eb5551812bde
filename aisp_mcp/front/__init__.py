"""Fronts: MCP, HTTP, REST, the command line, the dashboard, the terminal view and the doctor.

Each renders the registry; none knows a tool by name or decides anything about a result. Start with `mcp/server.py` or
`cli/main.py`.
"""
