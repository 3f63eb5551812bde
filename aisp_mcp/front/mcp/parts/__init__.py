"""The parts the MCP server is assembled from, beside its tools: see base.py for what a part is."""
