"""`aisp doctor`: does the server start, and do the clients on this machine know it."""
