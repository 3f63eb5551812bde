"""`python -m aisp_mcp`: the MCP server, or with --list the catalogue."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working folder: nothing in it may be imported

from aisp_mcp.front.mcp.main import main

if __name__ == "__main__":
    sys.exit(main())
