"""Charts as shapes, drawn once for the HTML report, for pictures and for the view inside an MCP client.

Data missing from a result is left out, never made up. Start with `answers.py`.
"""
