"""The MCP server over Streamable HTTP: where it listens, who may come in, and how it ends."""
