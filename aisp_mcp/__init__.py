"""aisp: AI-systems performance engineering over MCP, with a harness that proves speed-ups."""

__version__ = "0.1.0"
