"""Run a problem's recipe once in a process of its own, and describe its inputs."""
