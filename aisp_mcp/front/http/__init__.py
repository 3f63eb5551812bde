"""The MCP server over Streamable HTTP: address, authentication, limits and shutdown. Start with `app.py`."""
