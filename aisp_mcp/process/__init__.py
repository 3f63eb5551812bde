"""Run a command: argument list, limits, whole trees killed, bounded output; isolation levels."""
