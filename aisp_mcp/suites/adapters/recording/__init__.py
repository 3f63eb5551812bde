"""Run a problem's recipe in a separate process, and describe its inputs."""
