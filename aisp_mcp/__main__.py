"""`python -m aisp_mcp`: the MCP server, or with --list the catalogue."""

import sys

from aisp_mcp.front.mcp import main

if __name__ == "__main__":
    sys.exit(main())
