"""Measurements of the machine itself. Each runs in a child process and returns rates with intervals."""
