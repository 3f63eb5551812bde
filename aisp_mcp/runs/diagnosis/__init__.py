"""Find what limits a profile or a stored run: bottlenecks, memory access, communication, data loading."""
