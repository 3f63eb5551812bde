"""Charts: from figures to shapes once, for the HTML report, for pictures and for the view inside an MCP client."""
