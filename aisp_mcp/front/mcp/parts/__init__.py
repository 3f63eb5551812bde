"""The parts of the MCP server other than its tools. Start with `base.py`."""
