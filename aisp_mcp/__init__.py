"""aisp: AI-systems performance engineering over MCP, with a referee that proves speed-ups."""

__version__ = "0.1.0"
