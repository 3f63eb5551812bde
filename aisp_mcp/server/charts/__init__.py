"""Charts as shapes, drawn once for the HTML report, for pictures and for the view inside an MCP client.

What a result lacks is left out, never made up. Start with `answers.py`.
"""
